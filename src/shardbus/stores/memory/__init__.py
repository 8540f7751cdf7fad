"""The store in the memory of one process: for tests, and the model of the others."""
