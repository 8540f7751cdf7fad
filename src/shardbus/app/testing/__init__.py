"""`shardbus test-server`: private buses for tests, whose time the test moves."""
