"""Who serves which slots of a shared database: members, leases, epochs."""
