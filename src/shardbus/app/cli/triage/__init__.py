"""`shardbus triage`: dead letters in groups, and the way back for a group that was mended."""
