-- Version 1 of the schema. The names with a dollar sign are kinds of rows: `rows.py` of the chunked
-- stores has their numbers, and describes each kind.
--
-- A later version adds to this one. It keeps the functions of this version while builds that call
-- them may run: the name of a function contains the number of its version. A later version may give
-- a function a new body with the same effect, and has it then: `apply_v1` and `commit_v1` are in 5.

-- A slot is the store of one broker; only its owner writes to it. A new owner raises `epoch`. Each
-- transaction that writes has the next number in `commits`, and names both. So a late transaction of
-- an earlier owner changes nothing, and an owner that lost its connection can determine whether its
-- last transaction was committed.
CREATE TABLE slot (
    slot integer PRIMARY KEY,
    epoch bigint NOT NULL,
    commits bigint NOT NULL,
    owner text NOT NULL,
    namespace_id text NOT NULL,
    highest_entity_id bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- `local` is the number of a fragment in keys (key = local << 43 | counter), unique among all slots.
-- The columns about remembered ids that may be forgotten, and about chunks with parts, have the same
-- meaning as in the schema for SQLite.
CREATE TABLE fragment (
    local bigint PRIMARY KEY,
    slot integer NOT NULL,
    entity_id bigint NOT NULL,
    number integer NOT NULL,
    counters bytea NOT NULL,
    is_deleted boolean NOT NULL DEFAULT false,
    forgotten_at bigint NOT NULL DEFAULT 0,
    forgotten_to bigint NOT NULL DEFAULT 0,
    has_parts boolean NOT NULL DEFAULT false
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);
CREATE UNIQUE INDEX fragment_name ON fragment (slot, entity_id, number) WHERE NOT is_deleted;

-- Messages as they were sent, many in one row; a chunk with `parts` has no body.
CREATE TABLE chunk (
    first bigint PRIMARY KEY,
    span integer NOT NULL,
    size bigint NOT NULL,
    due_at bigint NOT NULL,
    is_mixed boolean NOT NULL,
    head bytea NOT NULL,
    body bytea,
    parts bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.02,
        toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE chunk ALTER head SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;
CREATE INDEX chunk_due ON chunk ((first >> 43), due_at, first) WHERE due_at > 0;

-- The messages that were removed from a chunk that still has others.
CREATE TABLE gap (
    first bigint PRIMARY KEY,
    bitmap bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- Messages that are scheduled, that have a session, or that settling, expiry or damage changed. Each
-- is a separate chunk: `head` and `body`, or `parts`; all are NULL if the bytes are lost.
CREATE TABLE entry (
    key bigint PRIMARY KEY,
    line smallint NOT NULL,
    state smallint NOT NULL,
    size bigint NOT NULL,
    due_at bigint NOT NULL,
    session bigint,
    data bytea NOT NULL,
    head bytea,
    body bytea,
    parts bigint[]
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.02,
        toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE entry ALTER data SET STORAGE EXTERNAL, ALTER head SET STORAGE EXTERNAL,
    ALTER body SET STORAGE EXTERNAL;
CREATE INDEX entry_line ON entry (line, state, key);
CREATE INDEX entry_due ON entry ((key >> 43), due_at, key) WHERE due_at > 0;
CREATE INDEX entry_session ON entry (session, state, key) WHERE session IS NOT NULL;

-- Chunks with a damaged head, as they were when their messages were set aside.
CREATE TABLE evidence (
    key bigint PRIMARY KEY,
    head bytea,
    body bytea
);

-- Sessions that have messages on the main line, or a state. `rank` is the key of the first active
-- message, NULL if there is none.
CREATE TABLE session (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    local bigint NOT NULL,
    name bytea NOT NULL,
    rank bigint
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX session_name ON session (local, name);
CREATE INDEX session_rank ON session (rank) WHERE rank IS NOT NULL;

CREATE TABLE session_state (
    session bigint PRIMARY KEY,
    set_at bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE session_state ALTER data SET STORAGE EXTERNAL;

-- Message ids that were accepted: one row for each commit and fragment.
CREATE TABLE remembered (
    key bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    data bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE remembered ALTER data SET STORAGE EXTERNAL;

-- Records that a fragment stores beside its messages, by kind and key.
CREATE TABLE record (
    local bigint NOT NULL,
    kind bigint NOT NULL,
    key bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (local, kind, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE record ALTER data SET STORAGE EXTERNAL;

-- Payloads that several chunks share, and the number of these chunks; a part is deleted with the last
-- one. The bytes are in another table, because this row changes more often than they do.
CREATE TABLE part (
    id bigint PRIMARY KEY,
    users integer NOT NULL,
    body bytea NOT NULL
) WITH (toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 20000,
        toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE part ALTER body SET STORAGE EXTERNAL;

-- Messages that are invisible until they are published, in the pieces in which they arrived.
CREATE TABLE stage (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    local bigint NOT NULL,
    stage bytea NOT NULL,
    piece bigint NOT NULL,
    data bytea NOT NULL,
    parts bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stage ALTER data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX stage_piece ON stage (local, stage, piece);

-- The catalogue. Texts are bytes: clients may send characters that PostgreSQL refuses in texts.
CREATE TABLE namespace (
    only_one boolean PRIMARY KEY CHECK (only_one),
    namespace_id text NOT NULL,
    next_entity_id bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    rules bytea NOT NULL,
    rules_checksum bigint NOT NULL,
    epoch bigint NOT NULL,
    owner text NOT NULL
);
CREATE TABLE entity (
    id bigint PRIMARY KEY,
    name_key bytea NOT NULL UNIQUE,
    document bytea NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE unfinished (
    id bigint PRIMARY KEY,
    document bytea NOT NULL,
    checksum bigint NOT NULL,
    is_final boolean NOT NULL
);

-- Every transaction of an owner begins with this. A process that takes the slot updates the same row:
-- the second of the two waits, and then sees the row as the first one wrote it. `_at` is the position
-- (ctid) at which the owner last wrote the row: a search by key would visit all row versions that an
-- old snapshot keeps.
CREATE FUNCTION fence_v1(_slot integer, _epoch bigint, _commit bigint, _at tid) RETURNS tid
LANGUAGE plpgsql AS $$
DECLARE
    _found tid;
BEGIN
    UPDATE slot SET commits = _commit
    WHERE ctid = _at AND slot = _slot AND epoch = _epoch AND commits = _commit - 1
    RETURNING ctid INTO _found;
    IF NOT FOUND THEN
        UPDATE slot SET commits = _commit
        WHERE slot = _slot AND epoch = _epoch AND commits = _commit - 1
        RETURNING ctid INTO _found;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'slot % has another owner than epoch %, or another commit than %',
            _slot, _epoch, _commit - 1 USING ERRCODE = 'SB001';
    END IF;
    RETURN _found;
END $$;
