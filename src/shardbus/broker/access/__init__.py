"""Who may do what: keys, tokens, rights, and the slow answer to whoever guesses."""
