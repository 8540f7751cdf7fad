"""What stores that keep messages in chunks have in common, whatever database holds the rows.

The bytes of records (`chunk`, `head`, `staged`), the plan of a commit (`batch`, `rows`), and reads
(`reader`, `due`, `session`, `bulk`), which ask the database through one interface (`lookup`).
"""
