"""The Flight server: admission of calls, tickets, and errors for clients."""
