"""Runs fragments: applies commands, commits their changes, answers; and finds the right fragment.

Knows stores only by `stores.base.store`; `app` chooses the kind of store. Nothing is answered
before it is stored, and a fragment whose commit failed is loaded again.
"""
