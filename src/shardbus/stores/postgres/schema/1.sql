-- Version 1 of the schema. The names with a dollar sign are kinds of rows: `rows.py` of the chunked
-- stores has their numbers, and describes each kind.
--
-- A later version adds to this one. It keeps the functions of this version while builds that call
-- them may run: the name of a function contains the number of its version.

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

-- Applies the rows of a commit. `_mask` has a bit for each kind among them, and bit 0 if a message in
-- them has a session. Rows of one kind are applied together, and the kinds in such an order that data
-- is read before it is deleted: within one commit no two rows are about the same object.
CREATE FUNCTION apply_v1(
    _mask bigint, _kind smallint[], _key bigint[], _number bigint[], _source bigint[],
    _start bigint[], _count bigint[], _size bigint[], _due_at bigint[], _line smallint[],
    _state smallint[], _flag smallint[], _head bytea[], _body bytea[], _parts text[],
    _data bytea[], _name bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _touched bigint[];
    _more bigint[];
    _row record;
BEGIN
    IF _mask & (1 << $EVIDENCE) <> 0 THEN
        INSERT INTO evidence
        SELECT u.key, c.head, CASE WHEN c.parts IS NULL THEN c.body ELSE (
            SELECT string_agg(p.body, '' ORDER BY x.at)
            FROM unnest(c.parts) WITH ORDINALITY AS x(id, at) JOIN part p ON p.id = x.id) END
        FROM unnest(_kind, _key, _number) AS u(kind, key, number) JOIN chunk c ON c.first = u.number
        WHERE u.kind = $EVIDENCE
        ON CONFLICT DO NOTHING;
    END IF;
    IF _mask & (1 << $MOVE) <> 0 THEN
        INSERT INTO entry (key, line, state, size, due_at, data, head, body)
        SELECT u.key, u.line, u.state, u.size, u.due_at, u.data, u.head,
            substring(c.body FROM u.start::integer + 1 FOR u.size::integer)
        FROM unnest(_kind, _key, _source, _start, _size, _due_at, _line, _state, _head, _data)
            AS u(kind, key, source, start, size, due_at, line, state, head, data)
            LEFT JOIN chunk c ON c.first = u.source
        WHERE u.kind = $MOVE
        ON CONFLICT DO NOTHING;
    END IF;
    IF _mask & (1 << $MOVE_PART) <> 0 THEN
        INSERT INTO entry (key, line, state, size, due_at, data, head, body)
        SELECT u.key, u.line, u.state, u.size, u.due_at, u.data, u.head,
            substring(p.body FROM u.start::integer + 1 FOR u.size::integer)
        FROM unnest(_kind, _key, _source, _start, _size, _due_at, _line, _state, _head, _data)
            AS u(kind, key, source, start, size, due_at, line, state, head, data)
            LEFT JOIN part p ON p.id = u.source
        WHERE u.kind = $MOVE_PART
        ON CONFLICT DO NOTHING;
    END IF;
    IF _mask & (1 << $LOSE) <> 0 THEN
        INSERT INTO entry (key, line, state, size, due_at, data)
        SELECT u.key, u.line, u.state, u.size, u.due_at, u.data
        FROM unnest(_kind, _key, _size, _due_at, _line, _state, _data)
            AS u(kind, key, size, due_at, line, state, data)
        WHERE u.kind = $LOSE
        ON CONFLICT DO NOTHING;
    END IF;
    IF _mask & ((1 << $CHANGE) | (1 << $FORGET)) <> 0 THEN
        SELECT array_agg(e.session) INTO _touched
        FROM unnest(_kind, _key) AS u(kind, key) JOIN entry e ON e.key = u.key
        WHERE u.kind IN ($CHANGE, $FORGET) AND e.session IS NOT NULL;
    END IF;
    IF _mask & 1 <> 0 THEN
        INSERT INTO session (local, name)
        SELECT DISTINCT u.key >> 43, u.name FROM unnest(_kind, _key, _name) AS u(kind, key, name)
        WHERE u.name IS NOT NULL AND (u.kind = $BRING
            OR u.kind = $CHANGE AND EXISTS (SELECT FROM entry e WHERE e.key = u.key))
        ON CONFLICT DO NOTHING;
        SELECT array_agg(s.id) INTO _more
        FROM unnest(_kind, _key, _name) AS u(kind, key, name)
            JOIN session s ON s.local = u.key >> 43 AND s.name = u.name
        WHERE u.kind IN ($BRING, $CHANGE);
        _touched := _touched || _more;
    END IF;
    IF _mask & (1 << $CHANGE) <> 0 THEN
        UPDATE entry e SET line = u.line, state = u.state, due_at = u.due_at, data = u.data,
            session = (SELECT s.id FROM session s WHERE s.local = u.key >> 43 AND s.name = u.name)
        FROM unnest(_kind, _key, _due_at, _line, _state, _data, _name)
            AS u(kind, key, due_at, line, state, data, name)
        WHERE u.kind = $CHANGE AND e.key = u.key;
    END IF;
    IF _mask & (1 << $RELEASE) <> 0 THEN
        WITH going AS (
            SELECT x.id, count(*) AS users
            FROM unnest(_kind, _key, _number) AS u(kind, key, number) CROSS JOIN LATERAL (
                SELECT unnest(c.parts) AS id FROM chunk c WHERE c.first = u.number
                UNION ALL
                SELECT unnest(e.parts) FROM entry e WHERE u.number IS NULL AND e.key = u.key) AS x
            WHERE u.kind = $RELEASE GROUP BY x.id
        ), stays AS (
            UPDATE part p SET users = p.users - g.users FROM going g
            WHERE p.id = g.id AND p.users > g.users
        )
        DELETE FROM part p USING going g WHERE p.id = g.id AND p.users <= g.users;
    END IF;
    IF _mask & (1 << $FORGET) <> 0 THEN
        DELETE FROM entry e USING unnest(_kind, _key) AS u(kind, key)
        WHERE u.kind = $FORGET AND e.key = u.key;
    END IF;
    IF _mask & (1 << $DROP) <> 0 THEN
        DELETE FROM chunk c USING unnest(_kind, _number) AS u(kind, number)
        WHERE u.kind = $DROP AND c.first = u.number;
        DELETE FROM gap g USING unnest(_kind, _number, _count) AS u(kind, number, count)
        WHERE u.kind = $DROP AND u.count = 1 AND g.first = u.number;
    END IF;
    IF _mask & (1 << $APPEND) <> 0 THEN
        INSERT INTO chunk
        SELECT u.key, u.count, u.size, u.due_at, u.flag = 1, u.head, u.body,
            translate(u.parts, '[]', '{}')::bigint[]
        FROM unnest(_kind, _key, _count, _size, _due_at, _flag, _head, _body, _parts)
            AS u(kind, key, count, size, due_at, flag, head, body, parts)
        WHERE u.kind = $APPEND;
    END IF;
    IF _mask & (1 << $GAP) <> 0 THEN
        INSERT INTO gap
        SELECT u.number, u.data FROM unnest(_kind, _number, _data) AS u(kind, number, data)
        WHERE u.kind = $GAP
        ON CONFLICT (first) DO UPDATE SET bitmap = excluded.bitmap;
    END IF;
    IF _mask & (1 << $DUE) <> 0 THEN
        UPDATE chunk c SET due_at = u.due_at, is_mixed = u.flag = 1
        FROM unnest(_kind, _number, _due_at, _flag) AS u(kind, number, due_at, flag)
        WHERE u.kind = $DUE AND c.first = u.number;
    END IF;
    IF _mask & (1 << $BRING) <> 0 THEN
        INSERT INTO entry
        SELECT u.key, u.line, u.state, u.size, u.due_at,
            (SELECT s.id FROM session s WHERE s.local = u.key >> 43 AND s.name = u.name),
            u.data, u.head, u.body, translate(u.parts, '[]', '{}')::bigint[]
        FROM unnest(_kind, _key, _size, _due_at, _line, _state, _head, _body, _parts, _data, _name)
            AS u(kind, key, size, due_at, line, state, head, body, parts, data, name)
        WHERE u.kind = $BRING
        ON CONFLICT DO NOTHING;
    END IF;
    IF _mask & (1 << $PART) <> 0 THEN
        INSERT INTO part
        SELECT u.number, u.count, u.body
        FROM unnest(_kind, _number, _count, _body) AS u(kind, number, count, body)
        WHERE u.kind = $PART;
    END IF;
    IF _mask & (1 << $HAS_PARTS) <> 0 THEN
        UPDATE fragment f SET has_parts = true FROM unnest(_kind, _key) AS u(kind, key)
        WHERE u.kind = $HAS_PARTS AND f.local = u.key;
    END IF;
    IF _mask & ((1 << $STATE) | (1 << $NO_STATE)) <> 0 THEN
        INSERT INTO session (local, name)
        SELECT u.key, u.name FROM unnest(_kind, _key, _name) AS u(kind, key, name)
        WHERE u.kind = $STATE
        ON CONFLICT DO NOTHING;
        INSERT INTO session_state
        SELECT s.id, u.due_at, u.data
        FROM unnest(_kind, _key, _due_at, _data, _name) AS u(kind, key, due_at, data, name)
            JOIN session s ON s.local = u.key AND s.name = u.name
        WHERE u.kind = $STATE
        ON CONFLICT (session) DO UPDATE SET set_at = excluded.set_at, data = excluded.data;
        SELECT array_agg(s.id) INTO _more
        FROM unnest(_kind, _key, _name) AS u(kind, key, name)
            JOIN session s ON s.local = u.key AND s.name = u.name
        WHERE u.kind = $NO_STATE;
        DELETE FROM session_state WHERE session = ANY (_more);
        _touched := _touched || _more;
    END IF;
    IF _mask & (1 << $FORGET_IDS) <> 0 THEN
        FOR _row IN
            SELECT u.key, u.count, u.due_at
            FROM unnest(_kind, _key, _count, _due_at) AS u(kind, key, count, due_at)
            WHERE u.kind = $FORGET_IDS
        LOOP
            UPDATE fragment SET forgotten_at = _row.due_at, forgotten_to = coalesce(
                (SELECT max(r.key) FROM remembered r
                    WHERE r.key BETWEEN _row.key AND _row.key + (1::bigint << 43) - 1),
                forgotten_to)
            WHERE local = _row.key >> 43;
            DELETE FROM remembered WHERE at_ms <= _row.due_at AND key = ANY (ARRAY(
                SELECT r.key FROM remembered r
                WHERE r.key BETWEEN _row.key AND _row.key + (1::bigint << 43) - 1
                ORDER BY r.key LIMIT _row.count));
        END LOOP;
    END IF;
    IF _mask & (1 << $REMEMBER) <> 0 THEN
        FOR _row IN
            SELECT u.key, u.due_at, u.data, f.forgotten_at, f.forgotten_to
            FROM unnest(_kind, _key, _due_at, _data) AS u(kind, key, due_at, data)
                JOIN fragment f ON f.local = u.key >> 43
            WHERE u.kind = $REMEMBER
        LOOP
            INSERT INTO remembered VALUES (
                1 + greatest(_row.key, _row.forgotten_to,
                    (SELECT max(r.key) FROM remembered r
                        WHERE r.key BETWEEN _row.key AND _row.key + (1::bigint << 43) - 1)),
                _row.due_at, _row.data);
            DELETE FROM remembered WHERE at_ms <= _row.forgotten_at AND key = ANY (ARRAY(
                SELECT r.key FROM remembered r
                WHERE r.key BETWEEN _row.key AND _row.forgotten_to
                ORDER BY r.key LIMIT 4));
        END LOOP;
    END IF;
    IF _mask & (1 << $RECORD) <> 0 THEN
        DELETE FROM record r
        USING unnest(_kind, _key, _number, _data, _name) AS u(kind, key, number, data, name)
        WHERE u.kind = $RECORD AND u.data IS NULL
            AND r.local = u.key AND r.kind = u.number AND r.key = u.name;
        INSERT INTO record
        SELECT u.key, u.number, u.name, u.data
        FROM unnest(_kind, _key, _number, _data, _name) AS u(kind, key, number, data, name)
        WHERE u.kind = $RECORD AND u.data IS NOT NULL
        ON CONFLICT (local, kind, key) DO UPDATE SET data = excluded.data;
    END IF;
    IF _touched IS NOT NULL THEN
        UPDATE session s SET rank = r.rank
        FROM (
            SELECT t.id, (
                SELECT e.key FROM entry e WHERE e.session = t.id AND e.state = 0
                ORDER BY e.key LIMIT 1) AS rank
            FROM unnest(_touched) AS t(id)) AS r
        WHERE s.id = r.id AND s.rank IS DISTINCT FROM r.rank;
        DELETE FROM session s WHERE s.id = ANY (_touched) AND s.rank IS NULL
            AND NOT EXISTS (SELECT FROM entry e WHERE e.session = s.id)
            AND NOT EXISTS (SELECT FROM session_state x WHERE x.session = s.id);
    END IF;
END $$;

-- One commit, in one call and one transaction. Returns the new positions (ctid) of the rows of the
-- slot and of the fragments.
CREATE FUNCTION commit_v1(
    _slot integer, _epoch bigint, _commit bigint, INOUT _at tid,
    INOUT _locals bigint[], INOUT _ats tid[], _counters bytea[],
    _mask bigint, _kind smallint[], _key bigint[], _number bigint[], _source bigint[],
    _start bigint[], _count bigint[], _size bigint[], _due_at bigint[], _line smallint[],
    _state smallint[], _flag smallint[], _head bytea[], _body bytea[], _parts text[],
    _data bytea[], _name bytea[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _done bigint[];
    _where tid[];
    _more bigint[];
    _others tid[];
BEGIN
    _at := fence_v1(_slot, _epoch, _commit, _at);
    IF _mask <> 0 THEN
        PERFORM apply_v1(_mask, _kind, _key, _number, _source, _start, _count, _size, _due_at,
            _line, _state, _flag, _head, _body, _parts, _data, _name);
    END IF;
    WITH done AS (
        UPDATE fragment f SET counters = u.counters
        FROM unnest(_locals, _ats, _counters) AS u(local, at, counters)
        -- `+ 0` keeps the planner from using the index of `local`.
        WHERE f.ctid = u.at AND f.local + 0 = u.local
        RETURNING f.local, f.ctid)
    SELECT array_agg(done.local), array_agg(done.ctid) INTO _done, _where FROM done;
    IF coalesce(cardinality(_done), 0) < cardinality(_locals) THEN
        WITH done AS (
            UPDATE fragment f SET counters = u.counters
            FROM unnest(_locals, _counters) AS u(local, counters)
            WHERE f.local = u.local AND u.local <> ALL (coalesce(_done, '{}'))
            RETURNING f.local, f.ctid)
        SELECT array_agg(done.local), array_agg(done.ctid) INTO _more, _others FROM done;
        _done := _done || _more;
        _where := _where || _others;
    END IF;
    _locals := _done;
    _ats := _where;
END $$;
