"""Links on which clients send and receive, and the sessions they hold."""
