"""Entities: names, descriptions and properties, who may use them, and where messages belong."""
