"""What a store is: the contract that brokers, the lane and the tools know, and nothing else."""
