"""Every bound of the core, one constant each, checked against each other at import."""

from typing import Final

# A sequence number is `fragment << 48 | counter` and must stay a positive AMQP long.
SEQUENCE_COUNTER_BITS: Final = 48
SEQUENCE_COUNTER_MASK: Final = (1 << SEQUENCE_COUNTER_BITS) - 1
FRAGMENTS_MAX: Final = 1 << 15

# What a fragment keeps of a line in memory, however long the line is (D3).
WINDOW_COUNT_MAX: Final = 2048
WINDOW_BYTES_MAX: Final = 2 * 1024 * 1024
# One read of the store brings at most this much; a window this empty asks for the next read.
PAGE_COUNT_MAX: Final = 1024
PAGE_BYTES_MAX: Final = 1024 * 1024
WINDOW_COUNT_LOW: Final = 512
# Payloads and states that the answers of one turn lack and that are read for them together; one
# that is larger is read alone.
LACKING_BYTES_MAX: Final = 4 * 1024 * 1024
# Expired messages are taken out of a fragment in pieces of this size.
DUE_COUNT_MAX: Final = 512

LOCKS_MAX: Final = 100_000
# Locks that end in one step because their time is over; the others end in the next.
LOCKS_ENDED_MAX: Final = 4_096

KEY_CHARACTERS_MAX: Final = 128
REASON_CHARACTERS_MAX: Final = 4096

LOCK_MS_MIN: Final = 5_000
LOCK_MS_MAX: Final = 300_000

# Sessions that clients hold at once, and free ones a fragment knows of without asking its store.
SESSIONS_HELD_MAX: Final = 20_000
SESSIONS_KNOWN_MAX: Final = 4_096
SESSIONS_PAGE_MAX: Final = 1_024
# What one held session keeps of its messages in memory, however many it has.
SESSION_WINDOW_COUNT_MAX: Final = 64
SESSION_WINDOW_BYTES_MAX: Final = 512 * 1024
# What all of them share: the more are held, the less a new one keeps.
SESSION_WINDOWS_BYTES_MAX: Final = 64 * 1024 * 1024
STATE_BYTES_MAX: Final = 256 * 1024
STATES_MAX: Final = 1_000_000
SHORT_STATE_BYTES_MAX: Final = 1024
"""A session state of this size is set even while the store takes nothing more in."""

# Deferred messages that one command takes, all or none: more bytes are refused, unless it is one.
DEFERRED_COUNT_MAX: Final = 250
DEFERRED_BYTES_MAX: Final = 16 * 1024 * 1024
CANCEL_COUNT_MAX: Final = 10_000
# What settlements may change of a message's properties, all of them together.
MODIFIED_BYTES_MAX: Final = 64 * 1024
DELAY_MS_MAX: Final = 7 * 24 * 3600 * 1000

# Message ids that a fragment remembers; the next one is refused, because neither memory may grow
# without end nor a duplicate slip through.
DIGEST_BYTES: Final = 16
REMEMBERED_MAX: Final = 4_000_000

# What one fragment has promised to transactions that are not finished, and decided about them.
PREPARED_MAX: Final = 10_000
PREPARED_BYTES_MAX: Final = 64 * 1024 * 1024
DECISIONS_MAX: Final = 100_000
# What is promised waits at most so long for a decision, whatever the clocks say.
DECIDE_MS_MAX: Final = 60_000
ROLLBACK_KEPT_MS: Final = 3_600_000
# Messages that are promised for so long are late: what has the same key waits for them, so long.
PROMISE_LATE_MS: Final = 1_000
KEYS_BARRED_MS: Final = 30_000
# Transactions whose numbers are kept for whoever committed them, and for how long.
FINISHED_MAX: Final = 10_000
FINISHED_KEPT_MS: Final = 600_000

# What one line has given out to be transferred and nobody has settled yet.
TRANSFERS_MAX: Final = 512
TRANSFERS_BYTES_MAX: Final = 1024 * 1024
# Lines of other fragments that a fragment remembers how much it took over from; what the next one
# sends is refused, because a double could not be told. One that was deleted is forgotten when it
# has sent nothing for so long that nobody can still be about to repeat something of it.
TRANSFER_MARKS_MAX: Final = 100_000
TRANSFER_MARK_KEPT_MS: Final = 7 * 24 * 3600 * 1000
# Entities that are named, and marks that are forgotten, at once.
TRANSFER_SOURCES_MAX: Final = 1_000
TRANSFER_MARKS_FORGOTTEN_MAX: Final = 10_000
HOPS_MAX: Final = 4

# Senders (gateways, for each start of one) whose numbered commands a fragment remembers, and for
# how long after the last.
TICKET_SENDERS_MAX: Final = 1_024
TICKETS_KEPT_MS: Final = 3_600_000
# What it found when it was loaded it keeps for at least so long from then on, however late it seems
# to be: the clock may have been set. Nobody begins to ask about a command that is older than half
# of that, nor asks for longer than a minute.
TICKETS_LOADED_KEPT_MS: Final = 600_000
TICKETS_ASKED_MS: Final = 300_000
# What it remembers of the unanswered ones of a sender: runs of those that are not stored, and
# replies that somebody will want to know.
TICKET_GAPS_MAX: Final = 1_024
TICKET_REPLIES_MAX: Final = 4_096

# Readers of one fragment, and what they may have set aside. A claim this large is still one small
# commit, and so is its end; the runs of all of them are in memory.
READERS_MAX: Final = 64
CLAIMS_MAX: Final = 1_024
CLAIM_COUNT_MAX: Final = 4_096
CLAIM_RUNS_MAX: Final = 65_536
# Messages of a claim that one command gives out.
CLAIM_PIECE_COUNT_MAX: Final = 512
CLAIM_PIECE_BYTES_MAX: Final = 8 * 1024 * 1024
# Stretches of lost claims that a reader can tell from completed ones.
LOST_RUNS_MAX: Final = 64
READER_NAME_CHARACTERS_MAX: Final = 128
OWNER_BYTES_MAX: Final = 128
READER_ID_BYTES_MAX: Final = 16
LEASE_MS_MIN: Final = 10_000
LEASE_MS_MAX: Final = 24 * 3600 * 1000
LEASE_MS_DEFAULT: Final = 600_000
# An owner that was heard of within this time keeps all others out.
OWNER_MS_MAX: Final = 15_000

# Stages of one fragment, and what is in them.
STAGES_MAX: Final = 16_384
STAGE_PIECES_MAX: Final = 4_096
STAGE_PIECE_BYTES_MAX: Final = 1024 * 1024
# What one publication has in one fragment is stored at once if it is no more than this; what of it
# is packed is also read into memory for that. More is stored in bites of so much.
WHOLE_BYTES_MAX: Final = 64 * 1024 * 1024
WHOLE_COUNT_MAX: Final = 262_144
BITE_BYTES_MAX: Final = 8 * 1024 * 1024
BITE_COUNT_MAX: Final = 16_384
BITE_PIECES_MAX: Final = 1_024
# More than this is looked at before it is promised, in steps of so much.
CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024
# Of a publication so many messages are sent before others have their turn.
ADMITTED_MAX: Final = 4_096
STAGE_NAME_CHARACTERS_MAX: Final = 128
STAGE_NAME_BYTES_MAX: Final = 4 * STAGE_NAME_CHARACTERS_MAX
STAGE_MS_MIN: Final = 60_000
STAGE_MS_MAX: Final = 24 * 3600 * 1000
STAGE_MS_DEFAULT: Final = 3600 * 1000
# Producers that a fragment remembers the last batch of; an idle one makes room for another.
PRODUCERS_MAX: Final = 4_096
PRODUCER_NAME_CHARACTERS_MAX: Final = 256
PRODUCER_NAME_BYTES_MAX: Final = 4 * PRODUCER_NAME_CHARACTERS_MAX
PRODUCER_KEPT_MS: Final = 30 * 24 * 3600 * 1000
# One that publishes once is forgotten when it says so, or so long after; it asks for half as long
# at most whether it has published.
PRODUCER_ONCE_KEPT_MS: Final = 3600 * 1000
BATCH_MAX: Final = (1 << 63) - 1
# Batches of a producer whose rows are known again, and what they are known by.
FINGERPRINTS_MAX: Final = 16
FINGERPRINT_CHARACTERS_MAX: Final = 64
FINGERPRINT_BYTES_MAX: Final = 4 * FINGERPRINT_CHARACTERS_MAX

PEEK_COUNT_MAX: Final = 250
PEEK_BYTES_MAX: Final = 256 * 1024

assert WINDOW_COUNT_LOW + PAGE_COUNT_MAX <= WINDOW_COUNT_MAX
assert PAGE_BYTES_MAX <= WINDOW_BYTES_MAX
assert TICKETS_ASKED_MS + 60_000 < TICKETS_LOADED_KEPT_MS < TICKETS_KEPT_MS
assert FRAGMENTS_MAX << SEQUENCE_COUNTER_BITS <= 1 << 63
