"""ARM templates: read with their expressions evaluated, and written."""
