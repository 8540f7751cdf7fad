"""The commands about tickets: what became of a command whose answer was lost."""
