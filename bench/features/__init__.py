"""What a queue does beside sending and receiving, and whether its cost stays flat.

Each module measures one feature on a real server: sessions, duplicate detection, scheduling. Every
one compares parts of the same run, on a conventional queue and on one of 16 fragments.
"""
