"""Speaks protocols: each gateway translates between one wire and the broker, and owns no message.

A gateway may import `amqp`, `core` and `broker`, never another gateway and never a store.
The outermost frame of each gateway is the one place that turns errors into answers.
"""
