"""The programs people start: the server and the command-line client.

Settings are read here and nowhere else, and `serve` alone picks clock, store and gateways.
Nothing below this package may import it.
"""
