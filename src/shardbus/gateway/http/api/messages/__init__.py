"""Messages and sessions in the JSON API."""
