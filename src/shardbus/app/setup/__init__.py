"""Declarative set-up: the entities that a file describes, and how the namespace gets them.

Three formats (our TOML, the emulator's `Config.json`, ARM templates) are read into one model, and
written from it; the difference to the present namespace is applied through its own APIs. Nothing
here knows a store or a broker: all it needs is a `Transport`.
"""
