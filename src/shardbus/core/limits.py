"""Every bound of the core, one constant each. Bounds that depend on each other are checked here."""

from typing import Final

# A sequence number is `fragment << 48 | counter` and must stay a positive AMQP long.
SEQUENCE_COUNTER_BITS: Final = 48
SEQUENCE_COUNTER_MASK: Final = (1 << SEQUENCE_COUNTER_BITS) - 1
FRAGMENTS_MAX: Final = 1 << 15
# Of one entity: those that accept messages, and all together with those of its former maps.
ENTITY_FRAGMENTS_MAX: Final = 64
ENTITY_FRAGMENTS_KEPT_MAX: Final = 256

# What a fragment keeps of a line in memory, however long the line is.
WINDOW_COUNT_MAX: Final = 2048
WINDOW_BYTES_MAX: Final = 2 * 1024 * 1024
# One read of the store brings at most this much; a window with fewer messages asks for a read.
PAGE_COUNT_MAX: Final = 1024
PAGE_BYTES_MAX: Final = 1024 * 1024
WINDOW_COUNT_LOW: Final = 512
# Payloads and states that the replies of one turn lack are read together up to this size; a larger
# one is read alone.
LACKING_BYTES_MAX: Final = 4 * 1024 * 1024
# Expired messages are removed from a fragment in pieces of this size.
DUE_COUNT_MAX: Final = 512

LOCKS_MAX: Final = 100_000
# Locks that end in one step because their time is over; the others end in the next step.
LOCKS_ENDED_MAX: Final = 4_096

KEY_CHARACTERS_MAX: Final = 128
REASON_CHARACTERS_MAX: Final = 4096

LOCK_MS_MIN: Final = 5_000
LOCK_MS_MAX: Final = 300_000
SESSION_GRACE_MS: Final = 500
"""How much longer a session is held than its receiver is told, on each side of the wire."""

# Sessions that clients may hold at once; free sessions that a fragment knows without asking its
# store.
SESSIONS_HELD_MAX: Final = 20_000
SESSIONS_KNOWN_MAX: Final = 4_096
SESSIONS_PAGE_MAX: Final = 1_024
# What one held session keeps of its messages in memory, however many it has.
SESSION_WINDOW_COUNT_MAX: Final = 64
SESSION_WINDOW_BYTES_MAX: Final = 512 * 1024
# The bound for all held sessions together: the more are held, the less a new one may keep.
SESSION_WINDOWS_BYTES_MAX: Final = 64 * 1024 * 1024
STATE_BYTES_MAX: Final = 256 * 1024
STATES_MAX: Final = 1_000_000
SHORT_STATE_BYTES_MAX: Final = 1024
"""A session state of up to this size can be set even while the store accepts no additions."""

# Deferred messages that one command may receive. More bytes are refused, except for one message.
DEFERRED_COUNT_MAX: Final = 250
DEFERRED_BYTES_MAX: Final = 16 * 1024 * 1024
CANCEL_COUNT_MAX: Final = 10_000
# How much the settlements of a message may change of its properties, in total.
MODIFIED_BYTES_MAX: Final = 64 * 1024
DELAY_MS_MAX: Final = 7 * 24 * 3600 * 1000

# Message ids that a fragment remembers. The next id is refused, because memory must not grow
# without end and no duplicate may pass.
DIGEST_BYTES: Final = 16
REMEMBERED_MAX: Final = 4_000_000
# Message ids that the fragments of a new map take over, while nobody can send.
CARRIED_IDS_MAX: Final = 100_000

# What one fragment may have promised to unfinished transactions, and the decisions it may keep.
PREPARED_MAX: Final = 10_000
PREPARED_BYTES_MAX: Final = 64 * 1024 * 1024
DECISIONS_MAX: Final = 100_000
# A promise waits at most this long for a decision, whatever the clocks say.
DECIDE_MS_MAX: Final = 60_000
ROLLBACK_KEPT_MS: Final = 3_600_000
# Promised messages are late after PROMISE_LATE_MS: messages with the same key then wait for them,
# for up to KEYS_BARRED_MS.
PROMISE_LATE_MS: Final = 1_000
KEYS_BARRED_MS: Final = 30_000
# Transactions whose sequence numbers are kept for the client that committed them, and how long.
FINISHED_MAX: Final = 10_000
FINISHED_KEPT_MS: Final = 600_000

# What one line may have given out for transfer that is not settled yet.
TRANSFERS_MAX: Final = 512
TRANSFERS_BYTES_MAX: Final = 1024 * 1024
# Lines of other fragments for which a fragment remembers what it took over. Messages from one more
# line are refused, because repeated ones could not be recognised. The mark of a deleted line is
# forgotten after it sent nothing for so long that nobody can still be repeating a transfer.
TRANSFER_MARKS_MAX: Final = 100_000
TRANSFER_MARK_KEPT_MS: Final = 7 * 24 * 3600 * 1000
# Entities named in one answer, and marks forgotten by one command.
TRANSFER_SOURCES_MAX: Final = 1_000
TRANSFER_MARKS_FORGOTTEN_MAX: Final = 10_000
HOPS_MAX: Final = 4

# Senders (one for each start of a gateway) whose numbered commands a fragment remembers, and how
# long after the last command.
TICKET_SENDERS_MAX: Final = 1_024
TICKETS_KEPT_MS: Final = 3_600_000
# A fragment that is loaded keeps what it remembers for at least this long, however old it seems,
# because the clock may have been set. A sender asks only about commands younger than half of that,
# and asks for at most a minute.
TICKETS_LOADED_KEPT_MS: Final = 600_000
TICKETS_ASKED_MS: Final = 300_000
# What a fragment remembers about the unanswered commands of a sender: runs of numbers that are not
# stored, and replies that may be asked for.
TICKET_GAPS_MAX: Final = 1_024
TICKET_REPLIES_MAX: Final = 4_096

# Readers of one fragment, and what they may claim. A claim of this size is still one small commit,
# and so is its completion. The runs of all claims are in memory.
READERS_MAX: Final = 64
CLAIMS_MAX: Final = 1_024
CLAIM_COUNT_MAX: Final = 4_096
CLAIM_RUNS_MAX: Final = 65_536
# So many runs for each session that claims may hold, counted once for every claim that has messages
# of it; the keys of the sessions are in memory, and in the records of the claims.
CLAIM_RUNS_PER_SESSION: Final = 2
# Pages that one claim reads in search of sessions that no receiver holds.
CLAIM_PAGES_MAX: Final = 16
# Messages of a claim that one command reads.
CLAIM_PIECE_COUNT_MAX: Final = 512
CLAIM_PIECE_BYTES_MAX: Final = 8 * 1024 * 1024
# Runs of lost claims that a reader remembers, to tell them from completed ones.
LOST_RUNS_MAX: Final = 64
READER_NAME_CHARACTERS_MAX: Final = 128
OWNER_BYTES_MAX: Final = 128
READER_ID_BYTES_MAX: Final = 16
LEASE_MS_MIN: Final = 10_000
LEASE_MS_MAX: Final = 24 * 3600 * 1000
LEASE_MS_DEFAULT: Final = 600_000
# A reader's owner that was active within this time keeps other owners out.
OWNER_MS_MAX: Final = 15_000

# Stages of one fragment, and their contents.
STAGES_MAX: Final = 16_384
STAGE_PIECES_MAX: Final = 4_096
STAGE_PIECE_BYTES_MAX: Final = 1024 * 1024
# What one publication has in one fragment is stored at once up to this size, and its packed
# messages are read into memory for that. Larger publications are stored in bites.
WHOLE_BYTES_MAX: Final = 64 * 1024 * 1024
WHOLE_COUNT_MAX: Final = 262_144
BITE_BYTES_MAX: Final = 8 * 1024 * 1024
BITE_COUNT_MAX: Final = 16_384
BITE_PIECES_MAX: Final = 1_024
# Larger stages are checked before they are promised, in steps of this size.
CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024
# Messages of a publication that are sent before other commands have their turn.
ADMITTED_MAX: Final = 4_096
# In front of the names of stages and producers of a subscription (broker.operations.staging).
STAGING_SCOPE_BYTES_MAX: Final = 24
STAGE_NAME_CHARACTERS_MAX: Final = 128
STAGE_NAME_BYTES_MAX: Final = 4 * STAGE_NAME_CHARACTERS_MAX + STAGING_SCOPE_BYTES_MAX
STAGE_MS_MIN: Final = 60_000
STAGE_MS_MAX: Final = 24 * 3600 * 1000
STAGE_MS_DEFAULT: Final = 3600 * 1000
# Producers whose last batch a fragment remembers; an idle one makes room for a new one.
PRODUCERS_MAX: Final = 4_096
PRODUCER_NAME_CHARACTERS_MAX: Final = 256
PRODUCER_NAME_BYTES_MAX: Final = 4 * PRODUCER_NAME_CHARACTERS_MAX + STAGING_SCOPE_BYTES_MAX
PRODUCER_KEPT_MS: Final = 30 * 24 * 3600 * 1000
# A producer that publishes once is forgotten when it says that it is done, or after this time. It
# asks for at most half of this time whether it has published.
PRODUCER_ONCE_KEPT_MS: Final = 3600 * 1000
BATCH_MAX: Final = (1 << 63) - 1
# Batches of a producer whose fingerprints are kept, and the size of a fingerprint.
FINGERPRINTS_MAX: Final = 16
FINGERPRINT_CHARACTERS_MAX: Final = 64
FINGERPRINT_BYTES_MAX: Final = 4 * FINGERPRINT_CHARACTERS_MAX

# The lifecycle records that a fragment keeps; the oldest are dropped, a segment at a time.
LIFECYCLE_BYTES_MAX: Final = 64 * 1024 * 1024
LIFECYCLE_MS_MAX: Final = 7 * 24 * 3600 * 1000
LIFECYCLE_SEGMENTS: Final = 64
# Rows that wait for a commit; with more a commit is made for them.
LIFECYCLE_ROWS_WAITING_MAX: Final = 4_096

PEEK_COUNT_MAX: Final = 250
PEEK_BYTES_MAX: Final = 256 * 1024

assert WINDOW_COUNT_LOW + PAGE_COUNT_MAX <= WINDOW_COUNT_MAX
assert PAGE_BYTES_MAX <= WINDOW_BYTES_MAX
assert TICKETS_ASKED_MS + 60_000 < TICKETS_LOADED_KEPT_MS < TICKETS_KEPT_MS
assert FRAGMENTS_MAX << SEQUENCE_COUNTER_BITS <= 1 << 63
