"""Ports: TLS, WebSocket, and the detection of the protocol by the first bytes."""
