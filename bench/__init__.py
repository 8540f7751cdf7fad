"""Fixed workloads that measure Shardbus against a peer and against the floor under both.

One client (`client`), in a process of its own, speaks to every server with the same code; `plan`
says what is measured, `rounds` interleaves it, `report` makes ratios of it; `features` does the
same for what else a queue can do.
Nothing here is imported by the product, and nothing here asserts a time.
"""
