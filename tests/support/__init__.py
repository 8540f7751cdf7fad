"""What tests against a running bus share: the server as a process, and clients to talk to it.

Nothing here is a test. Nothing here knows how the bus works inside, beyond its command line and its
wire.
"""
