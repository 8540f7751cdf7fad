"""AMQP's type system: values for which Python has no type, and the encoding of all values.

Pure; imports no other package. The protocol engine and the messages are built on it.
"""
