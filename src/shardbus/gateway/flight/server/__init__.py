"""The Flight server: who is let in, what tickets ask for, and how errors are told."""
