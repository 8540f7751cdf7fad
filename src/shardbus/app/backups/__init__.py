"""Backups of a namespace, and data directories that are restored from them.

`manifest` describes a backup, `kept` makes backups of a running server, `offline` of a stopped one,
and `restoring` makes a data directory from a backup, `filling` a database. `moving` moves a
namespace from one kind of store to another.
"""
