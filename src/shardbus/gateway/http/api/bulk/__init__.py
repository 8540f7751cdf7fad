"""Readers, claims and stages in the JSON API, for clients of the bulk lane."""
