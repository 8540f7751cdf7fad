"""The commands about forwarding: messages given out by one fragment, taken over by another."""
