"""The demo of `make run`: a bus, sample orders through it, a capture, and one live screen.

`demo` runs it all, `scene` creates its entities, `trickle` sends and receives, `screen` draws. It
is an ordinary client: it asks the bus over HTTP, and may not import what runs inside the server.
"""
