"""How the rate grows with brokers, each held to a share of a processor, and with stores (R2)."""
