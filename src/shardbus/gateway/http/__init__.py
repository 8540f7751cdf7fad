"""The HTTP gateway: messages, entity management in the ATOM dialect, a JSON API, and health.

`connection` speaks HTTP/1.1 over any transport, `site` decides who answers, the rest are answers.
It calls the broker and knows neither stores nor the other gateways.
"""
