"""Runs fragments: applies commands, commits their changes, answers; and finds the right fragment.

Knows stores only by `stores.base.store`; which store it is, `app` decides.
Nothing is answered before it is stored, and a failed commit means the fragment is loaded again.
"""
