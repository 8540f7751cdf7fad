"""The commands about messages: settling, deferring, scheduling, and duplicate detection."""
