"""Protocols: each gateway translates between one wire protocol and the broker, and owns no message.

A gateway may import `amqp`, `core` and `broker`, never another gateway and never a store. Only the
outermost frame of each gateway turns errors into answers.
"""
