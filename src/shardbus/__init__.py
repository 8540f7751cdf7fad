"""Shardbus: a durable message bus of partitioned queues that speaks the Azure Service Bus dialect.

Core decides, the store remembers, the broker answers, gateways translate.
Only the version lives here, so that importing the package costs and starts nothing.
"""

__version__ = "0.1.0"
