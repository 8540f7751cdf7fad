"""Keys, tokens, rights, and delayed answers to clients that guess keys."""
