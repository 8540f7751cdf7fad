"""The commands about tickets: whether a command whose answer was lost is stored."""
