"""The message as it is stored, which is the message as AMQP encodes it.

This package scans, revises and delivers messages, and shows them to rules. It lies below stores and
brokers, so that both may look into a payload; it is pure.
"""
