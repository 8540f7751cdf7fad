"""The assignment of the slots of a shared database to brokers: members, leases, epochs."""
