"""Which connections may stay, and how much all clients together may make the bus hold."""
