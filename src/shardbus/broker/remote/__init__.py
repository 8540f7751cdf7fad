"""Brokers in other processes: the gateway's end, the broker's end, and the shared catalogue."""
