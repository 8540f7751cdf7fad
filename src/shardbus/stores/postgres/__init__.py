"""Stores and the catalogue of a namespace in one PostgreSQL database."""
