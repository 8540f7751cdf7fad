"""The frames between gateways and brokers of other processes, as bytes and back."""
