"""The rule language: SQL filters and actions, correlation filters, and which subscriptions match.

An expression is parsed once to a `tree`, which back ends walk. The bus's own back end compiles it
to a plan that is evaluated for each message. Everything here is pure: ids are arguments, nothing
waits, reads a clock or knows a wire format. It may import core's errors, and stores, brokers and
gateways may import it.
"""
