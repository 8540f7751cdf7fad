"""`shardbus node`: a node of a cluster, its roles, and the connections between nodes."""
