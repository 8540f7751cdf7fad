"""The bulk lane: fragments as Arrow record batches over Flight, for Spark and other clients.

It runs in a process of its own, which reads the stores beside their brokers and asks the bus for
everything that changes something. `tiles` and `rows` are hot and do not use Arrow.
"""
