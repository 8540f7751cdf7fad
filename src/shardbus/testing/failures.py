"""The failure of a private bus."""


class BusFailed(Exception):
    """A private bus did not start, or refused what a test asked for; the text says why."""
