"""Conditions on the columns of a table, as in SQL.

A condition comes over the network from clients that may manage the bus. Spark's SQL can call any
method of Java, read any file in a subquery and put secrets of the process into texts. So no text
from a user ever reaches Spark's parser: `parser` builds a tree of what it supports and refuses the
rest with its position, and `columns` builds Spark's columns from the tree. `tree` and `parser` do
not use Spark.
"""
