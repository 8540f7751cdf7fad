"""Migrates messages from one namespace to another through the official SDK, with a journal."""
