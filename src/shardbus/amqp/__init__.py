"""AMQP 1.0 on the wire, for both roles: bytes become events, calls become bytes.

Values, frames, performatives and messages are read and written here, and the connection, session
and link state machines live in `connection`, `session` and `link`. Nothing here waits, reads a
clock, opens a socket or knows what a queue is: time and tokens are arguments, and the owner of a
`Connection` moves the bytes.
"""
