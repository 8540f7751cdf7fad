"""Which entities there are: made, changed, listed and removed, with their fragments and rules."""
