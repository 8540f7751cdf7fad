"""Work on many messages that the server does after the request: resubmit, move, delete, export.

A job survives its client and a restart of the server. Each message is moved by one transaction, so
a job that is repeated from an earlier place neither loses nor duplicates a message. Nothing here
knows where the state of jobs is kept: that is a `Shelf`.
"""
