"""Examines the files of a SQLite store, and repairs what is damaged."""
