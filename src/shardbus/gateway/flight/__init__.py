"""The bulk lane: fragments as Arrow record batches over Flight, for Spark and everybody else (D10).

It runs in a process of its own, which reads the stores beside their brokers and asks the bus for
everything that changes something. `tiles` and `rows` are hot and know nothing of Arrow.
"""
