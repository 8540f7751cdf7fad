"""Commands about messages: send, receive, peek, purge, dead letters, sessions."""
