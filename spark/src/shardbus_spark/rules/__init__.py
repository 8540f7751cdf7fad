"""The rules of subscriptions as columns of Spark.

The bus parses a rule and sends its tree as a document; this package does not parse the language of
rules. `message` reads the typed properties of a message, which its columns lack, from the column
`amqp`; `values` and `arithmetic` implement the semantics of the bus in columns; `columns` builds a
condition from a document.
"""
