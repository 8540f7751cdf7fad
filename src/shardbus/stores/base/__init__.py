"""The contract of a store, which is all that brokers, the lane and the tools know of it."""
