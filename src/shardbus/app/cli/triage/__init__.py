"""`shardbus triage`: groups dead letters, and redrives a group that was repaired."""
