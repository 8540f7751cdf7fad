"""The commands about message sessions: who holds one, until when, and what state it has."""
