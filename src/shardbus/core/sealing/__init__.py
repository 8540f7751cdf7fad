"""Fragments that accept no more messages, because their entity is or was repartitioned."""
