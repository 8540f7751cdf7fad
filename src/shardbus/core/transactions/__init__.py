"""The commands about transactions: done at once, or promised first and finished later."""
