-- Version 5 of the schema: what a commit reads does not grow with the versions of rows that a snapshot
-- keeps. No new version of a row that changes with every commit may go into a unique index: this
-- looks at all versions of the key. So the indexes of these tables are not unique, and triggers, or
-- the fence, see to it that a row has no twin.

ALTER TABLE slot DROP CONSTRAINT slot_pkey;
CREATE INDEX slot_number ON slot (slot);
ALTER TABLE fragment DROP CONSTRAINT fragment_pkey,
    -- Ids with a lower key are forgotten.
    ADD COLUMN remembered_from bigint NOT NULL DEFAULT 0;
DROP INDEX fragment_name;
CREATE INDEX fragment_local ON fragment (local);
CREATE INDEX fragment_name ON fragment (slot, entity_id, number) WHERE NOT is_deleted;

-- `turn` rises with every change of `rank`: the last version of a row is the first in a backward scan.
ALTER TABLE session DROP CONSTRAINT session_pkey, ADD COLUMN turn bigint NOT NULL DEFAULT 0;
DROP INDEX session_name;
CREATE INDEX session_id ON session (id, turn);
CREATE INDEX session_name ON session (local, name, id, turn);

-- Logical replication needs a unique key, or this.
ALTER TABLE slot REPLICA IDENTITY FULL;
ALTER TABLE fragment REPLICA IDENTITY FULL;
ALTER TABLE session REPLICA IDENTITY FULL;

-- Slots and fragments are rarely created, one process at a time: under the lock of local numbers.
CREATE FUNCTION only_slot_v5() RETURNS trigger LANGUAGE plpgsql SET search_path = shardbus AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1396862063);
    RETURN CASE WHEN EXISTS (SELECT FROM slot s WHERE s.slot = NEW.slot) THEN NULL ELSE NEW END;
END $$;
CREATE TRIGGER only_slot BEFORE INSERT ON slot FOR EACH ROW EXECUTE FUNCTION only_slot_v5();

CREATE FUNCTION only_fragment_v5() RETURNS trigger LANGUAGE plpgsql SET search_path = shardbus AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1396862063);
    IF EXISTS (SELECT FROM fragment f WHERE f.local = NEW.local)
        OR EXISTS (
            SELECT FROM fragment f WHERE f.slot = NEW.slot AND f.entity_id = NEW.entity_id
                AND f.number = NEW.number AND NOT f.is_deleted AND NOT NEW.is_deleted) THEN
        RAISE EXCEPTION 'fragment % of entity % in slot %, or number % of a fragment, is taken',
            NEW.number, NEW.entity_id, NEW.slot, NEW.local USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER only_fragment BEFORE INSERT ON fragment
FOR EACH ROW EXECUTE FUNCTION only_fragment_v5();

-- The number of a session; NULL if there is none. A later session of a name has a higher one.
CREATE FUNCTION session_v5(_local bigint, _name bytea) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT s.id FROM session s WHERE s.local = _local AND s.name = _name
        ORDER BY s.id DESC, s.turn DESC LIMIT 1);
END $$;

-- Remembers ids and forgets others, for fragments whose rows are at `_ats`; returns where they are
-- afterwards.
CREATE FUNCTION remember_v5(
    _kind smallint[], _key bigint[], _count bigint[], _due_at bigint[], _data bytea[],
    _locals bigint[], INOUT _ats tid[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _row record;
    _one fragment%ROWTYPE;
    _place integer;
    _at tid;
    _until bigint;
    _last bigint;
    _oldest bigint[];
    _gone bigint[];
    _from bigint;
BEGIN
    FOR _row IN
        SELECT u.kind, u.key, u.count, u.due_at, u.data
        FROM unnest(_kind, _key, _count, _due_at, _data) AS u(kind, key, count, due_at, data)
        WHERE u.kind IN ($FORGET_IDS, $REMEMBER) ORDER BY u.kind = $REMEMBER
    LOOP
        _place := array_position(_locals, _row.key >> 43);
        _at := _ats[_place];
        SELECT f.* INTO _one FROM fragment f WHERE f.ctid = _at AND f.local + 0 = _row.key >> 43;
        IF NOT FOUND THEN
            SELECT f.ctid INTO _at FROM fragment f WHERE f.local = _row.key >> 43;
            SELECT f.* INTO _one FROM fragment f WHERE f.ctid = _at;
        END IF;
        _from := greatest(_row.key, _one.remembered_from);
        _last := (
            SELECT max(r.key) FROM remembered r
            WHERE r.key BETWEEN _from AND _row.key + (1::bigint << 43) - 1);
        IF _row.kind = $FORGET_IDS THEN
            _one.forgotten_at := _row.due_at;
            _one.forgotten_to := coalesce(_last, _one.forgotten_to);
        ELSE
            INSERT INTO remembered VALUES (
                1 + greatest(_row.key, _one.forgotten_to, _last), _row.due_at, _row.data);
        END IF;
        _until := CASE _row.kind WHEN $REMEMBER THEN _one.forgotten_to
            ELSE _row.key + (1::bigint << 43) - 1 END;
        _oldest := ARRAY(
            SELECT r.key FROM remembered r WHERE r.key BETWEEN _from AND _until
            ORDER BY r.key LIMIT CASE _row.kind WHEN $REMEMBER THEN 4 ELSE _row.count END);
        WITH gone AS (
            DELETE FROM remembered
            WHERE at_ms <= _one.forgotten_at AND key = ANY (_oldest) RETURNING key)
        SELECT array_agg(key) INTO _gone FROM gone;
        IF _gone IS NULL AND _row.kind = $REMEMBER THEN
            CONTINUE;
        END IF;
        _from := coalesce(
            (SELECT min(x.key) FROM unnest(_oldest) AS x(key) WHERE x.key <> ALL (_gone)),
            (SELECT 1 + max(x.key) FROM unnest(_gone) AS x(key)), _one.remembered_from);
        UPDATE fragment SET forgotten_at = _one.forgotten_at, forgotten_to = _one.forgotten_to,
            remembered_from = _from
        WHERE ctid = _at RETURNING ctid INTO _at;
        IF _place IS NOT NULL THEN
            _ats[_place] := _at;
        END IF;
    END LOOP;
END $$;

-- Applies the rows of a commit. `_mask` has a bit for each kind among them, and bit 0 if a message in
-- them has a session. Rows of one kind are applied together, and the kinds in such an order that data
-- is read before it is deleted: within one commit no two rows are about the same object.
CREATE OR REPLACE FUNCTION apply_v1(
    _mask bigint, _kind smallint[], _key bigint[], _number bigint[], _source bigint[],
    _start bigint[], _count bigint[], _size bigint[], _due_at bigint[], _line smallint[],
    _state smallint[], _flag smallint[], _head bytea[], _body bytea[], _parts text[],
    _data bytea[], _name bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _touched bigint[];
    _about bigint[];
    _more bigint[];
    _others bigint[];
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
        SELECT array_agg(e.session), array_agg(e.key) INTO _touched, _about
        FROM unnest(_kind, _key) AS u(kind, key) JOIN entry e ON e.key = u.key
        WHERE u.kind IN ($CHANGE, $FORGET) AND e.session IS NOT NULL;
    END IF;
    IF _mask & 1 <> 0 THEN
        INSERT INTO session (local, name)
        SELECT DISTINCT u.key >> 43, u.name FROM unnest(_kind, _key, _name) AS u(kind, key, name)
        WHERE u.name IS NOT NULL AND (u.kind = $BRING
            OR u.kind = $CHANGE AND EXISTS (SELECT FROM entry e WHERE e.key = u.key))
            AND session_v5(u.key >> 43, u.name) IS NULL;
        SELECT array_agg(x.id), array_agg(x.key) INTO _more, _others
        FROM (
            SELECT session_v5(u.key >> 43, u.name) AS id, u.key
            FROM unnest(_kind, _key, _name) AS u(kind, key, name)
            WHERE u.kind IN ($BRING, $CHANGE) AND u.name IS NOT NULL) AS x
        WHERE x.id IS NOT NULL;
        _touched := _touched || _more;
        _about := _about || _others;
    END IF;
    IF _mask & (1 << $CHANGE) <> 0 THEN
        UPDATE entry e SET line = u.line, state = u.state, due_at = u.due_at, data = u.data,
            session = session_v5(u.key >> 43, u.name)
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
            session_v5(u.key >> 43, u.name), u.data, u.head, u.body, translate(u.parts, '[]', '{}')::bigint[]
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
        WHERE u.kind = $STATE AND session_v5(u.key, u.name) IS NULL;
        INSERT INTO session_state
        SELECT session_v5(u.key, u.name), u.due_at, u.data
        FROM unnest(_kind, _key, _due_at, _data, _name) AS u(kind, key, due_at, data, name)
        WHERE u.kind = $STATE
        ON CONFLICT (session) DO UPDATE SET set_at = excluded.set_at, data = excluded.data;
        SELECT array_agg(x.id) INTO _more
        FROM (
            SELECT session_v5(u.key, u.name) AS id
            FROM unnest(_kind, _key, _name) AS u(kind, key, name) WHERE u.kind = $NO_STATE) AS x
        WHERE x.id IS NOT NULL;
        DELETE FROM session_state WHERE session = ANY (_more);
        _touched := _touched || _more;
        _about := _about || array_fill(NULL::bigint, ARRAY[coalesce(cardinality(_more), 0)]);
    END IF;
    IF _mask & ((1 << $FORGET_IDS) | (1 << $REMEMBER)) <> 0 THEN
        PERFORM remember_v5(_kind, _key, _count, _due_at, _data, '{}', '{}');
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
        -- The first active message is not before the one until now, except among those in the rows.
        UPDATE session s SET rank = r.rank, turn = r.turn + 1
        FROM (
            SELECT o.at, o.turn, o.rank AS former, (
                SELECT e.key FROM entry e
                WHERE e.session = t.id AND e.state = 0 AND e.key >= least(o.rank, t.key)
                ORDER BY e.key LIMIT 1) AS rank
            FROM (
                SELECT x.id, min(x.key) AS key FROM unnest(_touched, _about) AS x(id, key)
                GROUP BY x.id) AS t
            CROSS JOIN LATERAL (
                SELECT l.ctid AS at, l.turn, l.rank FROM session l WHERE l.id = t.id
                ORDER BY l.turn DESC LIMIT 1) AS o) AS r
        WHERE s.ctid = r.at AND r.former IS DISTINCT FROM r.rank;
        DELETE FROM session s
        USING (SELECT DISTINCT x.id FROM unnest(_touched) AS x(id)) AS t
        CROSS JOIN LATERAL (
            SELECT l.ctid AS at, l.rank FROM session l WHERE l.id = t.id
            ORDER BY l.turn DESC LIMIT 1) AS o
        WHERE s.ctid = o.at AND o.rank IS NULL
            AND NOT EXISTS (SELECT FROM session_state x WHERE x.session = t.id)
            AND NOT EXISTS (SELECT FROM entry e WHERE e.session = t.id);
    END IF;
END $$;

-- One commit, in one call and one transaction. Returns the new positions (ctid) of the rows of the
-- slot and of the fragments.
CREATE OR REPLACE FUNCTION commit_v1(
    _slot integer, _epoch bigint, _commit bigint, INOUT _at tid,
    INOUT _locals bigint[], INOUT _ats tid[], _counters bytea[],
    _mask bigint, _kind smallint[], _key bigint[], _number bigint[], _source bigint[],
    _start bigint[], _count bigint[], _size bigint[], _due_at bigint[], _line smallint[],
    _state smallint[], _flag smallint[], _head bytea[], _body bytea[], _parts text[],
    _data bytea[], _name bytea[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _ids bigint;
    _done bigint[];
    _where tid[];
    _more bigint[];
    _others tid[];
BEGIN
    _at := fence_v1(_slot, _epoch, _commit, _at);
    _ids := (1 << $FORGET_IDS) | (1 << $REMEMBER);
    IF _mask & ~_ids <> 0 THEN
        PERFORM apply_v1(_mask & ~_ids, _kind, _key, _number, _source, _start, _count, _size, _due_at,
            _line, _state, _flag, _head, _body, _parts, _data, _name);
    END IF;
    IF _mask & _ids <> 0 THEN
        _ats := remember_v5(_kind, _key, _count, _due_at, _data, _locals, _ats);
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
