"""Messages over HTTP in the dialect: send, receive, complete, unlock and renew."""
