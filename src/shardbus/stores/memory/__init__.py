"""The store that forgets with its process: for tests, and the model of the others."""
