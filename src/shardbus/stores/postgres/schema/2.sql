-- Version 2 of the schema: slots that brokers lease. `core/cluster/statement.py` specifies the
-- statements of leases, and tests compare both.

-- `incarnation` is that of the owner, 0 without an owner; `taken_at_ms` and `taken_from` are for
-- operators.
ALTER TABLE slot
    ADD COLUMN incarnation bigint NOT NULL DEFAULT 0,
    ADD COLUMN taken_at_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN taken_from text NOT NULL DEFAULT '';

-- The cluster of the database, and its number among the cluster's stores. `timeline` is the last
-- timeline on which a broker waited until no broker could serve on the previous one.
CREATE TABLE cluster (
    only_one boolean PRIMARY KEY CHECK (only_one),
    cluster_id text NOT NULL,
    store integer NOT NULL,
    stores integer NOT NULL,
    slots integer NOT NULL,
    timeline bigint NOT NULL,
    secret bytea NOT NULL
);

-- The brokers that serve slots of this database; `about` describes one to gateways and operators.
CREATE TABLE member (
    name text PRIMARY KEY,
    incarnation bigint NOT NULL,
    beat bigint NOT NULL,
    is_leaving boolean NOT NULL,
    beat_at_ms bigint NOT NULL,
    about text NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- The gateways, for operators, and for the broker that does their work while there is none.
CREATE TABLE gateway (
    name text PRIMARY KEY,
    about text NOT NULL,
    seen_at_ms bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- Locks and held sessions of a slot that was handed over at this epoch.
CREATE TABLE handover (
    slot integer PRIMARY KEY,
    epoch bigint NOT NULL,
    data bytea NOT NULL
);

-- Raised by every change that gateways must learn of.
ALTER TABLE namespace ADD COLUMN version bigint NOT NULL DEFAULT 1;
-- The number of the last turn of a gateway that changes the namespace.
CREATE SEQUENCE turn;

CREATE FUNCTION now_ms_v2() RETURNS bigint
LANGUAGE sql AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The fence of a leased slot. The update locks the row, so that it can be examined.
CREATE FUNCTION fence_v2(
    _slot integer, _epoch bigint, _commit bigint, _at tid, _incarnation bigint
) RETURNS tid LANGUAGE plpgsql AS $$
DECLARE
    _found tid;
BEGIN
    _found := fence_v1(_slot, _epoch, _commit, _at);
    PERFORM FROM slot WHERE ctid = _found AND incarnation = _incarnation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'slot % has another owner than incarnation %', _slot, _incarnation
            USING ERRCODE = 'SB001';
    END IF;
    RETURN _found;
END $$;

CREATE FUNCTION commit_v2(
    _slot integer, _epoch bigint, _commit bigint, INOUT _at tid,
    INOUT _locals bigint[], INOUT _ats tid[], _counters bytea[],
    _mask bigint, _kind smallint[], _key bigint[], _number bigint[], _source bigint[],
    _start bigint[], _count bigint[], _size bigint[], _due_at bigint[], _line smallint[],
    _state smallint[], _flag smallint[], _head bytea[], _body bytea[], _parts text[],
    _data bytea[], _name bytea[], _incarnation bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO _at, _locals, _ats FROM commit_v1(
        _slot, _epoch, _commit, _at, _locals, _ats, _counters, _mask, _kind, _key, _number, _source,
        _start, _count, _size, _due_at, _line, _state, _flag, _head, _body, _parts, _data, _name);
    PERFORM FROM slot WHERE ctid = _at AND incarnation = _incarnation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'slot % has another owner than incarnation %', _slot, _incarnation
            USING ERRCODE = 'SB001';
    END IF;
END $$;

-- Takes a slot that still has this epoch, and returns its row; NULL if the epoch differs. `_floor` is
-- the lowest epoch of the timeline.
CREATE FUNCTION take_v2(
    _slot integer, _epoch bigint, _owner text, _incarnation bigint, _floor bigint,
    OUT _taken bigint, OUT _commits bigint, OUT _data bytea
) LANGUAGE plpgsql AS $$
DECLARE
    _row slot%ROWTYPE;
    _given handover%ROWTYPE;
BEGIN
    SELECT * INTO _row FROM slot WHERE slot = _slot FOR UPDATE;
    IF NOT FOUND OR _row.epoch <> _epoch THEN
        RETURN;
    END IF;
    UPDATE slot SET epoch = greatest(epoch + 1, _floor), owner = _owner, incarnation = _incarnation
    WHERE slot = _slot RETURNING epoch, commits INTO _taken, _commits;
    SELECT * INTO _given FROM handover WHERE slot = _slot;
    IF _given.epoch = _row.epoch OR _row.incarnation = _incarnation THEN
        _data := _given.data;
    ELSE
        DELETE FROM handover WHERE slot = _slot;
    END IF;
    IF _row.incarnation <> _incarnation THEN
        UPDATE slot SET taken_at_ms = now_ms_v2(), taken_from = _row.owner WHERE slot = _slot;
    END IF;
END $$;

-- Hands over a slot whose last commit is the expected one, with the data for its next owner.
CREATE FUNCTION give_v2(
    _slot integer, _epoch bigint, _incarnation bigint, _commits bigint,
    _to text, _to_incarnation bigint, _what bytea, _floor bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _given bigint;
BEGIN
    UPDATE slot SET epoch = greatest(epoch + 1, _floor), taken_from = owner, owner = _to,
        incarnation = _to_incarnation, taken_at_ms = now_ms_v2()
    WHERE slot = _slot AND epoch = _epoch AND incarnation = _incarnation AND commits = _commits
    RETURNING epoch INTO _given;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO handover VALUES (_slot, _given, _what)
    ON CONFLICT (slot) DO UPDATE SET epoch = excluded.epoch, data = excluded.data;
    RETURN true;
END $$;

-- Makes a broker a member, in place of the given incarnation, or of none (0).
CREATE FUNCTION join_v2(_name text, _incarnation bigint, _seen bigint, _about text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _found bigint;
BEGIN
    SELECT incarnation INTO _found FROM member WHERE name = _name FOR UPDATE;
    IF coalesce(_found, 0) <> _seen THEN
        RETURN false;
    END IF;
    IF _found IS NULL THEN
        INSERT INTO member VALUES (_name, _incarnation, 0, false, now_ms_v2(), _about)
        ON CONFLICT DO NOTHING;
        RETURN FOUND;
    END IF;
    UPDATE member SET incarnation = _incarnation, beat = 0, is_leaving = false,
        beat_at_ms = now_ms_v2(), about = _about
    WHERE name = _name;
    RETURN true;
END $$;

-- Raises the counter of a member and then reads all rows, in one statement: it sees everything that
-- was committed before the row of the member was locked.
CREATE FUNCTION beat_v2(
    _name text, _incarnation bigint, _is_leaving boolean,
    OUT _is_member boolean, OUT _cluster_id text, OUT _timeline bigint, OUT _time_ms bigint,
    OUT _members text[], OUT _incarnations bigint[], OUT _beats bigint[], OUT _leaving boolean[],
    OUT _beats_at bigint[], OUT _slots integer[], OUT _epochs bigint[], OUT _commits bigint[],
    OUT _owners text[], OUT _holders bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE member SET beat = beat + 1, is_leaving = _is_leaving, beat_at_ms = now_ms_v2()
    WHERE name = _name AND incarnation = _incarnation;
    _is_member := FOUND;
    _time_ms := now_ms_v2();
    _timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
    SELECT (SELECT cluster_id FROM cluster), m.*, s.*
    INTO _cluster_id, _members, _incarnations, _beats, _leaving, _beats_at,
        _slots, _epochs, _commits, _owners, _holders
    FROM (
        SELECT array_agg(name), array_agg(incarnation), array_agg(beat), array_agg(is_leaving),
            array_agg(beat_at_ms) FROM (SELECT * FROM member ORDER BY name) AS x
    ) AS m, (
        SELECT array_agg(slot), array_agg(epoch), array_agg(commits), array_agg(owner),
            array_agg(incarnation) FROM (SELECT * FROM slot ORDER BY slot) AS y
    ) AS s;
END $$;
