"""Moves messages from entities that forward to their destinations."""
