"""The HTTP gateway: entity management in the ATOM dialect, and health.

`connection` speaks HTTP/1.1 over any transport, `site` decides who answers, the rest are answers.
It calls the broker and knows neither stores nor the other gateways.
"""
