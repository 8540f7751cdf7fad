"""HTTP/1.1: connections, requests and responses, and which part of the gateway answers."""
