"""Declarative set-up: what a file says a namespace should have, and how the namespace gets there.

Three forms (our TOML, the emulator's `Config.json`, ARM templates) are read into one model, and
written from it; the difference to what the bus has is applied through its own APIs.
Nothing here knows a store or a broker: a `Transport` is all that it needs of the bus.
"""
