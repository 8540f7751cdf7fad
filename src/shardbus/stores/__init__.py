"""Message stores: where fragments are durable, one file or database per store.

Each store is a plain blocking object; the broker decides on which thread it is called. Stores know
`core` only. `base` is the contract, and one suite in tests/stores checks every store against it.
"""
