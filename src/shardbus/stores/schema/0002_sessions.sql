-- Sessions that have messages on the main line, or a state. `rank` is the key of the first active
-- one, NULL if there is none.
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    name BLOB NOT NULL,
    rank INTEGER
);
CREATE UNIQUE INDEX session_name ON session (local, name);
CREATE INDEX session_rank ON session (rank) WHERE rank IS NOT NULL;

-- Apart from the sessions: their rows change with every message, and a state may be large.
CREATE TABLE session_state (
    session INTEGER PRIMARY KEY,
    set_at INTEGER NOT NULL,
    data BLOB NOT NULL
);

-- Message ids that were accepted: a row per commit and fragment. Rows up to `forgotten_to` that are
-- not younger than `forgotten_at` go, some with each new one. That key is never used again: what is
-- remembered after the clock was set back must stay.
CREATE TABLE remembered (
    key INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    data BLOB NOT NULL
);
ALTER TABLE fragment ADD COLUMN forgotten_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragment ADD COLUMN forgotten_to INTEGER NOT NULL DEFAULT 0;

-- NULL unless the message is on the main line and not set aside.
ALTER TABLE entry ADD COLUMN session INTEGER;
CREATE INDEX entry_session ON entry (session, state) WHERE session IS NOT NULL;

CREATE TRIGGER entry_came AFTER INSERT ON entry
WHEN new.session IS NOT NULL AND new.state = 0 BEGIN
    UPDATE session SET rank = new.key
    WHERE id = new.session AND (rank IS NULL OR rank > new.key);
END;

CREATE TRIGGER entry_changed AFTER UPDATE OF state, session ON entry
WHEN old.session IS NOT NULL OR new.session IS NOT NULL BEGIN
    UPDATE session SET rank = new.key
    WHERE id = new.session AND new.state = 0 AND (rank IS NULL OR rank > new.key);
    UPDATE session SET rank = (
        SELECT key FROM entry WHERE session = old.session AND state = 0 ORDER BY key LIMIT 1)
    WHERE id = old.session AND rank = old.key AND (new.state <> 0 OR new.session IS NOT old.session);
    DELETE FROM session WHERE id = old.session AND new.session IS NOT old.session
    AND NOT EXISTS (SELECT 1 FROM entry WHERE session = old.session)
    AND NOT EXISTS (SELECT 1 FROM session_state WHERE session = old.session);
END;

CREATE TRIGGER entry_went AFTER DELETE ON entry WHEN old.session IS NOT NULL BEGIN
    UPDATE session SET rank = (
        SELECT key FROM entry WHERE session = old.session AND state = 0 ORDER BY key LIMIT 1)
    WHERE id = old.session AND rank = old.key;
    DELETE FROM session WHERE id = old.session AND rank IS NULL
    AND NOT EXISTS (SELECT 1 FROM entry WHERE session = old.session)
    AND NOT EXISTS (SELECT 1 FROM session_state WHERE session = old.session);
END;

-- The view with two more columns, so that a message with bytes of its own is one row. Every row runs
-- into every trigger, so what is rare shares one.
DROP VIEW work;
CREATE VIEW work AS
SELECT 0 AS kind, 0 AS key, 0 AS chunk, 0 AS count, 0 AS size, 0 AS due_at, 0 AS flag,
    x'' AS head, x'' AS body, x'' AS data, x'' AS name;

CREATE TRIGGER work_append INSTEAD OF INSERT ON work WHEN new.kind = 1 BEGIN
    INSERT INTO chunk VALUES (new.chunk, new.head, new.body);
    INSERT INTO recent VALUES (new.chunk, new.key, new.count, new.size, new.due_at, new.flag);
END;

CREATE TRIGGER work_counters INSTEAD OF INSERT ON work WHEN new.kind = 2 BEGIN
    UPDATE fragment SET counters = new.data WHERE local = new.key;
END;

CREATE TRIGGER work_gap INSTEAD OF INSERT ON work WHEN new.kind = 3 BEGIN
    INSERT OR REPLACE INTO gap VALUES (new.chunk, new.data);
END;

-- flag: 1 = it is in recent, 0 = in place; count: 1 = it has a gap.
CREATE TRIGGER work_drop INSTEAD OF INSERT ON work WHEN new.kind = 4 BEGIN
    DELETE FROM chunk WHERE id = new.chunk;
    DELETE FROM recent WHERE new.flag = 1 AND chunk = new.chunk;
    DELETE FROM place WHERE new.flag = 0 AND first = new.key;
    DELETE FROM gap WHERE new.count = 1 AND chunk = new.chunk;
END;

CREATE TRIGGER work_due INSTEAD OF INSERT ON work WHEN new.kind = 5 BEGIN
    UPDATE recent SET due_at = new.due_at, is_mixed = new.flag WHERE chunk = new.chunk;
    UPDATE place SET due_at = new.due_at, is_mixed = new.flag WHERE first = new.key;
END;

-- A message leaves its chunk. body: the chunk that the payload is copied from; name: where in its
-- body it begins; count: the line; flag: the state. A message that is an entry already was taken
-- for a part of its chunk because the gap of the chunk is damaged; then what is here is right.
CREATE TRIGGER work_move INSTEAD OF INSERT ON work WHEN new.kind = 6 BEGIN
    INSERT INTO chunk SELECT new.chunk, new.head, substr(body, new.name + 1, new.size)
    FROM chunk WHERE id = new.body;
    INSERT OR IGNORE INTO entry
    VALUES (new.key, new.count, new.flag, new.size, new.due_at, new.chunk, new.data, NULL);
END;

CREATE TRIGGER work_change INSTEAD OF INSERT ON work WHEN new.kind = 7 BEGIN
    INSERT OR IGNORE INTO session (local, name)
    SELECT new.key >> 43, new.name FROM entry WHERE new.name IS NOT NULL AND key = new.key;
    UPDATE entry SET line = new.count, state = new.flag, due_at = new.due_at, data = new.data,
        session = (SELECT id FROM session WHERE local = new.key >> 43 AND name = new.name)
    WHERE key = new.key;
END;

CREATE TRIGGER work_forget INSTEAD OF INSERT ON work WHEN new.kind = 8 BEGIN
    DELETE FROM chunk WHERE id = (SELECT chunk FROM entry WHERE key = new.key);
    DELETE FROM entry WHERE key = new.key;
END;

-- A message with a chunk of its own; name: that of its session, if it has one.
CREATE TRIGGER work_bring INSTEAD OF INSERT ON work WHEN new.kind = 9 BEGIN
    INSERT INTO chunk VALUES (new.chunk, new.head, new.body);
    INSERT OR IGNORE INTO session (local, name)
    SELECT new.key >> 43, new.name WHERE new.name IS NOT NULL;
    INSERT OR IGNORE INTO entry VALUES (
        new.key, new.count, new.flag, new.size, new.due_at, new.chunk, new.data,
        (SELECT id FROM session WHERE local = new.key >> 43 AND name = new.name));
END;

-- key: that of no message, the lowest of the fragment; due_at: when they were accepted.
CREATE TRIGGER work_remember INSTEAD OF INSERT ON work WHEN new.kind = 10 BEGIN
    INSERT INTO remembered SELECT
        1 + max(new.key, forgotten_to, coalesce(
            (SELECT max(key) FROM remembered WHERE key BETWEEN new.key AND new.key + (1 << 43) - 1),
            0)),
        new.due_at, new.data
    FROM fragment WHERE local = new.key >> 43;
    DELETE FROM remembered WHERE key IN (
        SELECT key FROM remembered
        WHERE key BETWEEN new.key AND (SELECT forgotten_to FROM fragment WHERE local = new.key >> 43)
        ORDER BY key LIMIT 4)
    AND at_ms <= (SELECT forgotten_at FROM fragment WHERE local = new.key >> 43);
END;

-- 11: the state of a session (key: the fragment; due_at: when it was set); 12: it has none.
-- 13: ids may be forgotten (key: as for 10; due_at: up to when; count: how many rows may go now).
-- 14: a chunk with a damaged head is kept. 15: a message whose bytes are lost becomes an entry.
CREATE TRIGGER work_other INSTEAD OF INSERT ON work WHEN new.kind > 10 BEGIN
    INSERT OR IGNORE INTO session (local, name) SELECT new.key, new.name WHERE new.kind = 11;
    INSERT OR REPLACE INTO session_state SELECT id, new.due_at, new.data FROM session
    WHERE new.kind = 11 AND local = new.key AND name = new.name;
    DELETE FROM session_state WHERE new.kind = 12
    AND session = (SELECT id FROM session WHERE local = new.key AND name = new.name);
    DELETE FROM session WHERE new.kind = 12 AND local = new.key AND name = new.name
    AND NOT EXISTS (SELECT 1 FROM entry WHERE session = session.id);
    UPDATE fragment SET forgotten_at = new.due_at, forgotten_to = coalesce(
        (SELECT max(key) FROM remembered WHERE key BETWEEN new.key AND new.key + (1 << 43) - 1),
        forgotten_to)
    WHERE new.kind = 13 AND local = new.key >> 43;
    DELETE FROM remembered WHERE new.kind = 13 AND at_ms <= new.due_at AND key IN (
        SELECT key FROM remembered WHERE key BETWEEN new.key AND new.key + (1 << 43) - 1
        ORDER BY key LIMIT new.count);
    INSERT OR IGNORE INTO evidence SELECT new.key, head, body FROM chunk
    WHERE new.kind = 14 AND id = new.chunk;
    INSERT OR IGNORE INTO entry
    SELECT new.key, new.count, new.flag, new.size, new.due_at, 0, new.data, NULL
    WHERE new.kind = 15;
END;
