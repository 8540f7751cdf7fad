"""Where the jobs of a server are kept: files in its data directory. The work itself is the
gateway's.
"""
