"""Who is let in and may stay, and how much all clients together may make the bus hold.

No peer has a limit of its own for connections. When all places are taken, the peer that has the
most connections which nobody vouches for loses its oldest one.
"""
