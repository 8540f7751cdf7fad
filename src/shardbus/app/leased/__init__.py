"""Documents in the first database of a cluster, each of which one process at a time works on."""
