"""Backups: one moment of all stores and the catalogue, copied while the bus runs."""
