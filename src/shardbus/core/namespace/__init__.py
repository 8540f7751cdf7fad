"""Entities: names, descriptions and properties, access rules, and the placement of messages."""
