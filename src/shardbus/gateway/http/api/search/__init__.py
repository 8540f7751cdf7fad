"""Searches over stored messages in the JSON API, and rules that are tried on them."""
