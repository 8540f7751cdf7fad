"""Brokers that lease slots of shared databases: the driver of leases, and the slots they serve."""
