"""The frames between gateways and brokers in other processes: encoding and decoding."""
