"""The rules of subscriptions as columns of Spark.

The bus parses a rule and sends its tree as a document; nothing here parses the language. `message`
reads what rules see and columns do not show from the column `amqp`, `values` and `arithmetic` are
the semantics of the bus in columns, and `columns` builds a condition from a document.
"""
