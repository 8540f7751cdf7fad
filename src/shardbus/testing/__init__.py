"""Private buses in tests: the pytest plugin, and the class it is made of for other runners.

Importing this package costs and starts nothing: it knows the bus by its command alone.
"""

from shardbus.testing.bus import PrivateBus
from shardbus.testing.failures import BusFailed
from shardbus.testing.warm_client import WarmProcess

__all__ = ["BusFailed", "PrivateBus", "WarmProcess"]
