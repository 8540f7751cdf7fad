"""Stores the jobs of a server as files in its data directory. The gateway does the work."""
