"""The embedded store: one SQLite file for each broker, and one for the catalogue."""
