"""Spark and the bus: how fast rows go either way, and what a sender notices of it.

Every rate stands beside the same work of the same Spark on Parquet files, in the same round.
Nothing here is imported by the product, and nothing here asserts a time.
"""
