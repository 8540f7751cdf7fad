"""The entities of the namespace: created, changed, listed and removed, with fragments and rules."""
