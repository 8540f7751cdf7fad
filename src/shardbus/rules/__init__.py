"""The rule language: SQL filters and actions, correlation filters, and which subscriptions match.

An expression is parsed once to a `tree`, which back ends walk; the bus's own compiles it to a plan
that answers a message at once. Everything here is pure: ids are arguments, nothing waits, reads a
clock or knows a wire; it may import core's errors, and stores, brokers and gateways may import it.
"""
