"""From an entity to its fragments: places what is sent, and matches receivers with messages."""
