"""The HTTP gateway: messages, entity management in the ATOM dialect, a JSON API, and health.

`connection` speaks HTTP/1.1 over any transport, `site` finds the handler, the rest are handlers. It
calls the broker and knows neither stores nor the other gateways.
"""
