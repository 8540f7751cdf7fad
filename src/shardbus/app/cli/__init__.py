"""The command line: a client of the HTTP interfaces, and the commands that start processes."""
