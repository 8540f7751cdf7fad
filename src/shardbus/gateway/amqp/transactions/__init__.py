"""Transactions of AMQP clients: declared, enlisted, discharged."""
