"""Every frame of the internal protocol as Hypothesis strategies, and what a frame says."""

from hypothesis import strategies as st

from shardbus.broker.frames import (
    FRAGMENT_STATES,
    Answered,
    Ask,
    Beat,
    Browse,
    Browsed,
    Fence,
    Fenced,
    Frame,
    Hello,
    Listed,
    ListSessions,
    Open,
    Prove,
    Reject,
    Request,
    State,
    Told,
    Unwatch,
    Watch,
    Welcome,
    Woken,
)
from shardbus.core.command import (
    ALL_LINES,
    DEFER,
    AcceptSession,
    AskProducers,
    AskStages,
    AskTickets,
    Cancel,
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    ClaimSummary,
    CompleteClaim,
    Completed,
    Delivery,
    DescribeClaim,
    Done,
    DropReader,
    DropStages,
    ForgetProducer,
    ForgetSources,
    GetState,
    HeldStage,
    Judged,
    KeepReader,
    ListReaders,
    ListSources,
    ListTransfers,
    NoSession,
    OpenReader,
    Outstanding,
    Producer,
    Producers,
    ProlongStages,
    Publication,
    Purge,
    Purged,
    ReadClaim,
    ReaderOpened,
    Readers,
    ReaderStatus,
    Receive,
    Received,
    ReceiveDeferred,
    RefuseTransfers,
    ReleaseClaims,
    ReleaseSession,
    Renew,
    Renewed,
    RenewSession,
    ReturnTransfers,
    Send,
    Sent,
    SessionAccepted,
    SessionState,
    SetState,
    Settle,
    Settled,
    Sources,
    Stage,
    StagesHeld,
    TakenOver,
    TakeOver,
    TakeTransfers,
    Ticket,
    TransfersDone,
)
from shardbus.core.errors import ALL_KINDS, Refused, Unavailable
from shardbus.core.message import DELAYED, SESSIONS, Entry, Message
from shardbus.core.runs import Runs, runs_of
from shardbus.core.stage_command import CheckStages, StagesChecked
from shardbus.core.transaction_command import (
    ROLLED_BACK,
    AskDecision,
    Decide,
    Decided,
    Enlist,
    Finish,
    ForgetDecision,
    InDoubt,
    ListTransactions,
    Owed,
    Prepare,
    Promised,
    Transact,
    Work,
)
from shardbus.stores.base import FragmentId, Page

Facts = object | tuple[object, ...]

_ids = st.integers(0, 2**63 - 1)
_u16 = st.integers(0, 2**16 - 1)
_u32 = st.integers(0, 2**32 - 1)
_i64 = st.integers(-(2**63), 2**63 - 1)
_lines = st.integers(0, 2)
_watched = st.integers(0, SESSIONS)
_texts = st.text(st.characters(codec=None), max_size=20)
_maybe_texts = st.none() | _texts
_bytes = st.binary(max_size=40)
_tokens = st.lists(st.binary(min_size=16, max_size=16), max_size=4)
_seeds = st.binary(min_size=8, max_size=8)
_sessions = st.just(b"") | st.binary(min_size=16, max_size=16)
_numbers = st.lists(_i64, max_size=4)
_nonces = st.binary(min_size=32, max_size=32)
_fragments = st.builds(FragmentId, _ids, _u16)

_messages = st.builds(
    Message,
    _bytes,
    message_id=_maybe_texts,
    session_id=_maybe_texts,
    partition_key=_maybe_texts,
    ttl_ms=st.integers(-1, 2**40),
    scheduled_at_ms=st.just(0) | _ids,
)


def _entries(payloads: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[Entry]:
    return st.builds(
        Entry,
        _ids,
        payloads,
        _u32,
        enqueued_at_ms=_ids,
        expires_at_ms=_ids,
        delivery_count=_u32,
        line=_lines,
        state=st.integers(0, DELAYED),
        reason=_maybe_texts,
        description=_maybe_texts,
        modified=_bytes,
        session_id=_maybe_texts,
        delayed_until_ms=st.just(0) | _ids,
    )


@st.composite
def _deliveries(draw: st.DrawFn) -> Delivery:
    payload = draw(_bytes)
    entry = draw(_entries(st.just(payload)))
    return Delivery(entry, payload, draw(_u32), draw(_bytes), draw(_ids))


_settlements = st.builds(
    Settle,
    st.integers(0, DEFER),
    _tokens,
    reason=_maybe_texts,
    description=_maybe_texts,
    modified=_bytes,
    delay_ms=st.just(0) | _i64,
)
_transactions = st.binary(max_size=32)
_homes = st.tuples(_i64, _i64)
_named = st.tuples(_bytes, _i64)


@st.composite
def _some_works(draw: st.DrawFn) -> Work:
    work = Work(
        draw(st.lists(_messages, max_size=3)),
        draw(st.lists(_settlements, max_size=3)),
        draw(st.lists(_named, max_size=3)),
        draw(st.none() | st.builds(Publication, _bytes, _i64, _bytes, is_once=st.booleans())),
    )
    work.batch_key = draw(_bytes)
    work.scheduled = draw(st.lists(st.tuples(_i64, _messages), max_size=3))
    work.cancelled = draw(st.lists(_i64, max_size=3))
    work.states = draw(st.lists(st.builds(SetState, _bytes, st.none() | _bytes), max_size=3))
    return work


_works = _some_works()
_senders = st.binary(min_size=1, max_size=16)
_tickets = st.builds(Ticket, _senders, _i64, _i64, keeps_reply=st.booleans())
_transacting = st.one_of(
    st.builds(Enlist, _works, _u32),
    st.builds(Transact, _works, st.none() | _tickets),
    st.builds(Prepare, _transactions, _works, _homes, _i64, keeps_reply=st.booleans()),
    st.builds(Decide, _transactions, _works, st.lists(_homes, max_size=3), st.none() | _tickets),
    st.builds(AskDecision, _transactions, is_over=st.booleans()),
    st.builds(Finish, _transactions, is_commit=st.booleans()),
    st.builds(ForgetDecision, _transactions),
    st.builds(ListTransactions),
)


@st.composite
def _take_overs(draw: st.DrawFn) -> TakeOver:
    source = draw(_i64), draw(_i64), draw(_i64)
    messages = draw(st.lists(_messages, max_size=3))
    numbers = draw(st.lists(_i64, min_size=len(messages), max_size=len(messages)))
    return TakeOver(source, messages, numbers, draw(_numbers), draw(_i64))


_transferring = st.one_of(
    st.builds(TakeTransfers, _lines, _u32, _i64),
    st.builds(TransfersDone, _lines, _numbers),
    st.builds(RefuseTransfers, _lines, _numbers, _lines, _texts, _texts),
    st.builds(ReturnTransfers, _lines, _numbers),
    st.builds(ListTransfers, _lines),
    st.builds(ListSources),
    st.builds(ForgetSources, _numbers),
    _take_overs(),
)

_reading = st.one_of(
    st.builds(OpenReader, _lines, _texts, _bytes, _i64, _bytes),
    st.builds(KeepReader, _lines, _texts, _bytes),
    st.builds(Claim, _lines, _texts, _bytes, _i64, _u32, _i64),
    st.builds(DescribeClaim, _lines, _texts, _i64, _bytes),
    st.builds(ReadClaim, _lines, _texts, _i64, _i64, _i64, _bytes),
    st.builds(CompleteClaim, _lines, _texts, _bytes, _i64),
    st.builds(ReleaseClaims, _lines, _texts, _bytes),
    st.builds(DropReader, _lines, _texts),
    st.builds(ListReaders, st.integers(ALL_LINES, 2)),
)
_summaries = st.builds(ClaimSummary, _i64, _i64, _i64, _i64, _i64)
_statuses = st.builds(
    ReaderStatus,
    _lines,
    _texts,
    reader_id=_bytes,
    owner=_bytes,
    lease_ms=_i64,
    heard_ms=_i64,
    completed=_i64,
    last=_i64,
    lost=_i64,
    claims=_i64,
    claimed=_i64,
    claimed_bytes=_i64,
    waiting=_i64,
    waiting_bytes=_i64,
)
_runs = st.sets(st.integers(1, 2**63 - 1), max_size=5).map(lambda some: runs_of(sorted(some)))
_staging = st.one_of(
    st.builds(Stage, _bytes, _i64, st.lists(_messages, max_size=3), _i64),
    st.builds(DropStages, st.lists(_bytes, max_size=3)),
    st.builds(AskStages, st.lists(_bytes, max_size=3), _bytes),
    st.builds(CheckStages, st.lists(_bytes, max_size=3)),
    st.builds(ProlongStages, st.lists(_bytes, max_size=3)),
    st.builds(AskProducers, _bytes),
    st.builds(ForgetProducer, _bytes),
)


@st.composite
def _producers(draw: st.DrawFn) -> Producer:
    producer = Producer(draw(_bytes), draw(_i64), draw(_i64))
    producer.fingerprints = draw(st.lists(_named.map(lambda one: (one[1], one[0])), max_size=3))
    return producer


_sent = st.builds(Sent, _ids, _u32, st.lists(_u32, max_size=3))

commands = st.one_of(
    _transacting,
    _staging,
    _transferring,
    _reading,
    st.builds(Send, st.lists(_messages, max_size=4), st.none() | _tickets),
    st.builds(AskTickets, _senders, _numbers, _i64),
    st.builds(
        Receive,
        _lines,
        _u32,
        is_locking=st.booleans(),
        token_seed=_seeds,
        session=_sessions,
    ),
    _settlements,
    st.builds(Renew, _tokens),
    st.builds(Purge, _lines, _u32, enqueued_until_ms=_i64, session=_sessions),
    st.builds(
        ReceiveDeferred,
        _lines,
        _numbers,
        is_locking=st.booleans(),
        token_seed=_seeds,
        session=_sessions,
    ),
    st.builds(Cancel, _numbers),
    st.builds(AcceptSession, _maybe_texts, _seeds),
    st.builds(RenewSession, _sessions),
    st.builds(ReleaseSession, _sessions),
    st.builds(GetState, _sessions),
    st.builds(SetState, _sessions, st.none() | _bytes),
)
replies = st.one_of(
    st.builds(Decided, st.integers(0, ROLLED_BACK)),
    st.builds(
        InDoubt,
        st.lists(st.builds(Promised, _transactions, _homes, is_over=st.booleans()), max_size=3),
        st.lists(st.builds(Owed, _transactions, _i64, st.lists(_homes, max_size=3)), max_size=3),
    ),
    st.builds(TakenOver, _numbers),
    st.builds(Outstanding, _i64, _u32),
    st.builds(Sources, _numbers),
    st.builds(ReaderOpened, _bytes, _i64, _i64, _i64, st.lists(_summaries, max_size=3)),
    st.builds(Claimed, st.none() | _summaries, st.booleans()),
    st.builds(ClaimRuns, _runs, _i64),
    st.builds(ClaimRead, st.lists(_entries(_bytes), max_size=3), _i64, st.booleans()),
    st.builds(Completed, _i64),
    st.builds(
        StagesHeld,
        st.lists(st.builds(HeldStage, _bytes, _runs, _i64, _i64), max_size=3),
        _i64,
        _i64,
        takes_bites=st.booleans(),
    ),
    st.builds(StagesChecked, _i64),
    st.builds(Producers, st.lists(_producers(), max_size=3)),
    st.builds(Readers, st.lists(_statuses, max_size=3)),
    _sent,
    st.builds(
        Judged, st.lists(st.booleans(), max_size=4), st.dictionaries(_i64, _sent, max_size=3)
    ),
    st.builds(Received, st.lists(_deliveries(), max_size=3), st.booleans()),
    st.builds(Settled, st.lists(st.booleans(), max_size=5)),
    st.builds(Renewed, _ids),
    st.builds(Purged, _u32, st.booleans()),
    st.builds(SessionAccepted, _texts, _bytes, _ids),
    st.builds(NoSession),
    st.builds(SessionState, _texts, st.none() | _bytes),
    st.builds(Done),
)


@st.composite
def _failed(draw: st.DrawFn) -> Answered:
    # Made here and not by `builds`, which keeps weak references: exceptions that mypyc compiled do
    # not tell those when they go, and the collector then walks freed memory.
    text, is_last = draw(_texts), draw(st.booleans())
    if draw(st.booleans()):
        return Answered(draw(_ids), Refused(draw(st.sampled_from(ALL_KINDS)), text), is_last)
    return Answered(draw(_ids), Unavailable(text, draw(st.booleans())), is_last)


_pages = st.builds(
    Page,
    st.lists(_entries(st.none() | _bytes), max_size=3),
    st.lists(_ids, max_size=3),
    st.booleans(),
)

frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, _u16, _texts, _nonces, _texts),
    st.builds(Prove, _u16, _texts, _nonces, _nonces),
    st.builds(Welcome, _nonces),
    st.builds(Reject, _texts),
    st.builds(Beat, _ids),
    st.builds(Open, _texts, st.lists(_u16, max_size=5)),
    st.builds(Request, _ids, _fragments, commands),
    st.builds(Answered, _ids, replies, st.booleans()),
    _failed(),
    st.builds(
        Browse,
        _ids,
        _fragments,
        _lines,
        start=_ids,
        count_max=_u32,
        bytes_max=_u32,
        session_id=_maybe_texts,
    ),
    st.builds(Browsed, _ids, _pages),
    st.builds(ListSessions, _ids, _fragments, updated_after_ms=_i64, skip=_ids, count_max=_u32),
    st.builds(Listed, _ids, st.lists(_texts, max_size=4)),
    st.builds(Watch, _fragments, _watched, _sessions),
    st.builds(Unwatch, _fragments, _watched, _sessions),
    st.builds(Woken, _fragments, _watched, _sessions),
    st.builds(State, _fragments, st.sampled_from(FRAGMENT_STATES), _texts),
    st.builds(Ask, _ids, _texts),
    st.builds(Told, _ids, _texts),
    st.builds(Fence, _ids),
    st.builds(Fenced, _ids, _ids),
)


def facts(value: object) -> Facts:
    """All that a value says, comparable: compiled classes have no `__eq__` and no `__dict__`."""
    if value is None or isinstance(value, bytes | str | int):
        return value
    if isinstance(value, Runs):
        return tuple(value.pairs())
    if isinstance(value, list | tuple):
        return tuple(facts(item) for item in value)
    names = [name for name in dir(value) if not name.startswith("_")]
    told = [(name, getattr(value, name)) for name in names]
    said = tuple((name, facts(item)) for name, item in told if not callable(item))
    return type(value).__name__, said
