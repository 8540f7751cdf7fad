"""Who is let in and may stay, and how much all clients together may make the bus hold."""
