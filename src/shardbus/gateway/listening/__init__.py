"""Ports: TLS, WebSocket, and the first bytes that say which gateway a connection is for."""
