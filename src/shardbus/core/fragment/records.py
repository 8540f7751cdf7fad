"""The kinds of records that fragments keep beside their messages (see `change.RecordChange`)."""

from typing import Final

PREPARED: Final = 1
"""By transaction: what a fragment has promised to do if that transaction is committed."""
DECISION: Final = 2
"""By transaction: whether it was committed, kept by the one fragment that decides it."""
TRANSFER_MARK: Final = 3
"""By source of transfers: the highest number that was taken from it."""
TRANSFERRED: Final = 4
"""By line: the highest number that was ever given out to be transferred."""
READER: Final = 5
"""By line and name: who reads there, and which claims are completed or lost (see `readers`)."""
CLAIM: Final = 6
"""By line, ordinal and name: the messages that a reader has set aside under that ordinal."""
STAGE: Final = 7
"""By name: which pieces of a stage the store has, and until when (see `stages`)."""
PRODUCER: Final = 8
"""By name: the last batch that was published, kept by the one fragment that decides about it."""
TICKETS: Final = 9
"""By sender: which of its numbered commands are stored (see `tickets`)."""
FINISHED: Final = 10
"""By transaction: the numbers of what was sent in it, for whoever committed it (see `finished`)."""
READER_ID: Final = 11
"""By line and name: what tells a reader from one of the same name that was dropped."""
PUBLISHING: Final = 12
"""By ordinal: stages of a publication that is decided and not wholly stored (see `bites`)."""
