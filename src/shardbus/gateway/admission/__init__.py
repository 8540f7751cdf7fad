"""Which connections may stay, and how much all clients together may make the bus hold.

The number of connections of one peer has no limit. When all places are taken, the peer that has the
most connections which nobody vouches for loses its oldest one.
"""
