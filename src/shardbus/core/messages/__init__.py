"""The commands about messages: settled, deferred, scheduled, and told from their doubles."""
