"""`shardbus cluster`: the nodes of a cluster, and their certificates."""
