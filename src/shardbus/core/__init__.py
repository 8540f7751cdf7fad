"""The rules of the bus: what a fragment does with every command, and where a message belongs.

Everything here is pure: time, tokens and ids are arguments, and nothing waits or touches a disk.
Stores, brokers and gateways may import core; core imports none of them, and not `amqp` either.
"""
