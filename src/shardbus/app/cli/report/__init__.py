"""`shardbus report`: the lifecycle records of an entity as figures and plots."""
