"""AMQP's type system: values that Python has no type for, and all values as bytes and back.

Pure, and knows no other package: the protocol engine and the messages stand on it.
"""
