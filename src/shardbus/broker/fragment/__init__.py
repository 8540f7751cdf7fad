"""Runs one fragment over its store: decides, commits once, then answers."""
