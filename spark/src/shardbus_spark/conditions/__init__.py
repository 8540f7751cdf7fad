"""Conditions that people write for the columns of a table, as in SQL.

A condition comes over the network from who may manage the bus, and Spark's SQL can call any method
of Java, read any file in a subquery and put secrets of the process into texts. So no text that
somebody wrote ever reaches Spark's parser: `parser` makes a tree of what it understands and
refuses the rest with its place, and `columns` builds Spark's columns from the tree. `tree` and
`parser` know nothing of Spark.
"""
