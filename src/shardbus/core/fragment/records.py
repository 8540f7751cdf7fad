"""The kinds of records that fragments keep beside their messages (see `change.RecordChange`)."""

from typing import Final

PREPARED: Final = 1
"""By transaction: what a fragment has promised to do if that transaction is committed."""
DECISION: Final = 2
"""By transaction: whether it was committed; kept by the one fragment that decides it."""
TRANSFER_MARK: Final = 3
"""By source of transfers: the highest transfer number that was taken over from it."""
TRANSFERRED: Final = 4
"""By line: the highest transfer number that was ever given out."""
READER: Final = 5
"""By line and name: a reader, and which of its claims are completed or lost (see `readers`)."""
CLAIM: Final = 6
"""By line, ordinal and name: the messages that a reader has claimed under that ordinal."""
STAGE: Final = 7
"""By name: which pieces of a stage the store has, and how long they are kept (see `stages`)."""
PRODUCER: Final = 8
"""By name: a producer's last batch; kept by the one fragment that decides about its batches."""
TICKETS: Final = 9
"""By sender: which of its numbered commands are stored (see `tickets`)."""
FINISHED: Final = 10
"""By transaction: the numbers of its sent messages, for the client that committed it (`finished`).
"""
READER_ID: Final = 11
"""By line and name: the id that tells a reader from a dropped one of the same name."""
PUBLISHING: Final = 12
"""By ordinal: the stages of a publication that is decided but not wholly stored (see `bites`)."""
BEGUN: Final = 13
"""Of a subscription: the first number that its topic gave it, and how far it was filled with
earlier messages (see `past`).
"""
LIFECYCLE: Final = 14
"""Which blocks of lifecycle records the store has (see `lifecycle`)."""
MISSING: Final = 17
"""How many rows of lifecycle records a full disk has cost, at least, until a row says so."""
AHEAD: Final = 16
"""Of a former fragment: the reader that claims of later maps already (see `readers`)."""
SEAL: Final = 15
"""One record: whether the fragment accepts messages, and for which map (see `sealing`)."""
