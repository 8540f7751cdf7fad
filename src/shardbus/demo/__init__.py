"""The demo that `make run` shows: a bus, sample orders through it, a capture, and one live screen.

`demo` runs it all, `scene` makes its entities, `trickle` sends and receives, `screen` draws.
It is a client like any other: what it knows of the bus it asks over HTTP, and it may not import
what runs inside the server.
"""
