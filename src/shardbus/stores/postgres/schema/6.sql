-- Version 6 of the schema: the open piece of a journal, beside the counters of its fragment.

ALTER TABLE fragment ADD COLUMN journal bytea NOT NULL DEFAULT '';

-- `_counters` may have more than the 146 bytes of counters: the open piece, or a single byte if there
-- is none. A node of the build before sends neither, and the open piece stays as it is.
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
        UPDATE fragment f SET counters = substring(u.counters FOR 146),
                journal = CASE octet_length(u.counters) WHEN 146 THEN f.journal WHEN 147 THEN ''
                    ELSE substring(u.counters FROM 147) END
        FROM unnest(_locals, _ats, _counters) AS u(local, at, counters)
        -- `+ 0` keeps the planner from using the index of `local`.
        WHERE f.ctid = u.at AND f.local + 0 = u.local
        RETURNING f.local, f.ctid)
    SELECT array_agg(done.local), array_agg(done.ctid) INTO _done, _where FROM done;
    IF coalesce(cardinality(_done), 0) < cardinality(_locals) THEN
        WITH done AS (
            UPDATE fragment f SET counters = substring(u.counters FOR 146),
                journal = CASE octet_length(u.counters) WHEN 146 THEN f.journal WHEN 147 THEN ''
                    ELSE substring(u.counters FROM 147) END
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
