"""Spark, senders and receivers at work for a million messages, while everything is killed at times.

`python -m spark.tests.storm` says how it goes on standard error and prints a verdict as JSON: what
was captured or transformed and what receivers completed is exactly what was sent, and what a sink,
a replay or a backfill wrote is there once, that of each key in order. A seed makes the same storm
again, as far as processes that run beside each other can.
"""
