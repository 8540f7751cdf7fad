"""ARM templates: read with their expressions worked out, and written."""
