"""From an entity to its fragments: places sent messages, and matches receivers with messages."""
