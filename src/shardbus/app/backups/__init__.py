"""Backups of a namespace, and data directories that are made of them.

`manifest` says what a backup consists of, `kept` makes backups of a server that runs, `offline`
of one that does not, and `restoring` makes a data directory of a backup.
"""
