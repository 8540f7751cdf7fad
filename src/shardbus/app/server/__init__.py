"""The server: its settings, its processes, and how they start, serve and stop."""
