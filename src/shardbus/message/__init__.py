"""The message as it is stored, which is the message as AMQP encodes it.

Scanning, revising and delivering one, and what rules see of it. Below stores and brokers, so that
both may look into a payload; pure.
"""
