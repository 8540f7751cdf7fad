"""Moves messages on from entities that forward to others."""
