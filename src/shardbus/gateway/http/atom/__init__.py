"""Entity management over ATOM, in the dialect's XML."""
