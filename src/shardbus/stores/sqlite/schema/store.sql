-- A store. The names with a dollar sign are kinds of rows: `rows.py` has their numbers, and says
-- which columns of `work` each kind has.

-- Fragments of this file. `local` is the fragment's number in keys (key = local << 43 | counter).
-- Remembered ids may be forgotten in rows up to `forgotten_to` that are not younger than
-- `forgotten_at`. `has_parts`: whether the fragment ever had a chunk with parts; if not, a chunk is
-- removed without looking for parts.
CREATE TABLE fragment (
    local INTEGER PRIMARY KEY,
    entity_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    counters BLOB NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0,
    forgotten_at INTEGER NOT NULL DEFAULT 0,
    forgotten_to INTEGER NOT NULL DEFAULT 0,
    has_parts INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX fragment_name ON fragment (entity_id, number) WHERE is_deleted = 0;

-- The bytes. Ids ascend in the order of commits, so that chunks of one commit are stored together,
-- whatever the number of fragments.
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,
    head BLOB NOT NULL,
    body BLOB NOT NULL
);

-- Where the messages of a fragment are: one row per chunk, in `recent` at first and later, many
-- at once, in `place`, which is ordered by fragment.
CREATE TABLE recent (
    chunk INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    is_mixed INTEGER NOT NULL
);
CREATE TABLE place (
    first INTEGER PRIMARY KEY,
    chunk INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    is_mixed INTEGER NOT NULL
);
CREATE INDEX place_due ON place (first >> 43, due_at) WHERE due_at > 0;

-- Which messages left a chunk that still has some.
CREATE TABLE gap (
    chunk INTEGER PRIMARY KEY,
    bitmap BLOB NOT NULL
);

-- Messages that are scheduled, that have a session, or that settling, expiry or damage changed.
-- Each has a chunk of its own; 0 if its bytes are lost. `session` is NULL unless the message is on
-- the main line and not set aside.
CREATE TABLE entry (
    key INTEGER PRIMARY KEY,
    line INTEGER NOT NULL,
    state INTEGER NOT NULL,
    size INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    data BLOB NOT NULL,
    session INTEGER
);
CREATE INDEX entry_line ON entry (line, state);
CREATE INDEX entry_due ON entry (key >> 43, due_at) WHERE due_at > 0;
CREATE INDEX entry_session ON entry (session, state) WHERE session IS NOT NULL;

-- Chunks with a damaged head, as they were when their messages were set aside.
CREATE TABLE evidence (
    key INTEGER PRIMARY KEY,
    head BLOB,
    body BLOB
);

-- Sessions that have messages on the main line, or a state. The name is the key of the session's
-- id. `rank` is the key of the first active message, NULL if there is none.
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

-- Accepted message ids: a row per commit and fragment. Each new row removes some of those that may
-- be forgotten. Keys are never used again: ids remembered after the clock was set back must stay.
CREATE TABLE remembered (
    key INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    data BLOB NOT NULL
);

-- What a fragment keeps beside its messages, by kind and key: few and small, loaded with it.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX record_key ON record (local, kind, key);

-- Payloads that several chunks share, most often copies of a message in several subscriptions. The
-- body of such a chunk is a text instead of bytes: the JSON list of its parts.
CREATE TABLE part (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- How many chunks use a part; the last one removes it. Separate from the bytes, because SQLite
-- writes a row as a whole.
CREATE TABLE part_users (
    part INTEGER PRIMARY KEY,
    users INTEGER NOT NULL
);
CREATE VIEW chunk_part AS
SELECT chunk.id AS chunk, value AS part FROM chunk, json_each(
    CASE WHEN typeof(body) = 'text' AND json_valid(body) THEN body ELSE '[]' END);

-- Messages that nobody sees until they are published: packed, in the pieces in which they came.
-- Payloads stored beside a piece are parts, with the piece as their only user, until publishing
-- makes chunks of them without copying a byte. `parts` is the JSON list of these parts.
CREATE TABLE stage (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    stage BLOB NOT NULL,
    piece INTEGER NOT NULL,
    data BLOB NOT NULL,
    parts TEXT NOT NULL DEFAULT '[]'
);
CREATE UNIQUE INDEX stage_piece ON stage (local, stage, piece);

-- The namespace to which the store belongs: no row until it has joined one. A catalogue with another
-- id does not know the contents of this store, so it must neither serve nor remove them.
CREATE TABLE namespace (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    namespace_id TEXT NOT NULL
) STRICT;

-- The highest entity id of any fragment that was ever created here, even if it was deleted: no copy
-- of the catalogue may give out an id again.
CREATE TABLE entity_ids (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    highest INTEGER NOT NULL
) STRICT;
INSERT INTO entity_ids VALUES (1, 0);

-- Triggers that maintain the ranks of sessions.
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

-- A commit is one INSERT of many rows into this view: a single statement is a transaction of its
-- own, and Python releases the interpreter lock once per statement instead of once per row. Every
-- row evaluates every trigger, so rare kinds share one.
CREATE VIEW work AS
SELECT 0 AS kind, 0 AS key, 0 AS number, 0 AS source, 0 AS start, 0 AS count, 0 AS size,
    0 AS due_at, 0 AS line, 0 AS state, 0 AS flag, x'' AS head, x'' AS body, x'' AS data,
    x'' AS name;

CREATE TRIGGER work_append INSTEAD OF INSERT ON work WHEN new.kind = $APPEND BEGIN
    INSERT INTO chunk VALUES (new.number, new.head, new.body);
    INSERT INTO recent
    VALUES (new.number, new.key, new.count, new.size, new.due_at, new.flag);
END;

CREATE TRIGGER work_counters INSTEAD OF INSERT ON work WHEN new.kind = $COUNTERS BEGIN
    UPDATE fragment SET counters = new.data WHERE local = new.key;
END;

CREATE TRIGGER work_gap INSTEAD OF INSERT ON work WHEN new.kind = $GAP BEGIN
    INSERT OR REPLACE INTO gap VALUES (new.number, new.data);
END;

CREATE TRIGGER work_drop INSTEAD OF INSERT ON work WHEN new.kind = $DROP BEGIN
    DELETE FROM chunk WHERE id = new.number;
    DELETE FROM recent WHERE new.flag = 1 AND chunk = new.number;
    DELETE FROM place WHERE new.flag = 0 AND first = new.key;
    DELETE FROM gap WHERE new.count = 1 AND chunk = new.number;
END;

CREATE TRIGGER work_due INSTEAD OF INSERT ON work WHEN new.kind = $DUE BEGIN
    UPDATE recent SET due_at = new.due_at, is_mixed = new.flag WHERE chunk = new.number;
    UPDATE place SET due_at = new.due_at, is_mixed = new.flag WHERE first = new.key;
END;

-- A message that is an entry already was taken for a part of its chunk because the gap of the chunk
-- is damaged; then what is here is right.
CREATE TRIGGER work_move INSTEAD OF INSERT ON work WHEN new.kind = $MOVE BEGIN
    INSERT INTO chunk SELECT new.number, new.head, substr(body, new.start + 1, new.size)
    FROM chunk WHERE id = new.source;
    INSERT OR IGNORE INTO entry
    VALUES (new.key, new.line, new.state, new.size, new.due_at, new.number, new.data, NULL);
END;

CREATE TRIGGER work_change INSTEAD OF INSERT ON work WHEN new.kind = $CHANGE BEGIN
    INSERT OR IGNORE INTO session (local, name)
    SELECT new.key >> 43, new.name FROM entry WHERE new.name IS NOT NULL AND key = new.key;
    UPDATE entry SET line = new.line, state = new.state, due_at = new.due_at, data = new.data,
        session = (SELECT id FROM session WHERE local = new.key >> 43 AND name = new.name)
    WHERE key = new.key;
END;

CREATE TRIGGER work_forget INSTEAD OF INSERT ON work WHEN new.kind = $FORGET BEGIN
    DELETE FROM chunk WHERE id = (SELECT chunk FROM entry WHERE key = new.key);
    DELETE FROM entry WHERE key = new.key;
END;

CREATE TRIGGER work_bring INSTEAD OF INSERT ON work WHEN new.kind = $BRING BEGIN
    INSERT INTO chunk VALUES (new.number, new.head, new.body);
    INSERT OR IGNORE INTO session (local, name)
    SELECT new.key >> 43, new.name WHERE new.name IS NOT NULL;
    INSERT OR IGNORE INTO entry VALUES (
        new.key, new.line, new.state, new.size, new.due_at, new.number, new.data,
        (SELECT id FROM session WHERE local = new.key >> 43 AND name = new.name));
END;

CREATE TRIGGER work_remember INSTEAD OF INSERT ON work WHEN new.kind = $REMEMBER BEGIN
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

CREATE TRIGGER work_other INSTEAD OF INSERT ON work WHEN new.kind > $REMEMBER BEGIN
    INSERT OR IGNORE INTO session (local, name)
    SELECT new.key, new.name WHERE new.kind = $STATE;
    INSERT OR REPLACE INTO session_state SELECT id, new.due_at, new.data FROM session
    WHERE new.kind = $STATE AND local = new.key AND name = new.name;
    DELETE FROM session_state WHERE new.kind = $NO_STATE
    AND session = (SELECT id FROM session WHERE local = new.key AND name = new.name);
    DELETE FROM session WHERE new.kind = $NO_STATE AND local = new.key AND name = new.name
    AND NOT EXISTS (SELECT 1 FROM entry WHERE session = session.id);
    UPDATE fragment SET forgotten_at = new.due_at, forgotten_to = coalesce(
        (SELECT max(key) FROM remembered WHERE key BETWEEN new.key AND new.key + (1 << 43) - 1),
        forgotten_to)
    WHERE new.kind = $FORGET_IDS AND local = new.key >> 43;
    DELETE FROM remembered WHERE new.kind = $FORGET_IDS AND at_ms <= new.due_at AND key IN (
        SELECT key FROM remembered WHERE key BETWEEN new.key AND new.key + (1 << 43) - 1
        ORDER BY key LIMIT new.count);
    INSERT OR IGNORE INTO evidence
    SELECT new.key, head, CASE WHEN typeof(body) = 'text' THEN (
        SELECT CAST(group_concat(part.body, '') AS BLOB)
        FROM chunk_part CROSS JOIN part ON part.id = chunk_part.part
        WHERE chunk_part.chunk = new.number) ELSE body END
    FROM chunk WHERE new.kind = $EVIDENCE AND id = new.number;
    DELETE FROM record
    WHERE new.kind = $RECORD AND local = new.key AND kind = new.number AND key = new.name;
    INSERT INTO record (local, kind, key, data)
    SELECT new.key, new.number, new.name, new.data
    WHERE new.kind = $RECORD AND new.data IS NOT NULL;
    INSERT INTO part SELECT new.number, new.body WHERE new.kind = $PART;
    INSERT INTO part_users SELECT new.number, new.count WHERE new.kind = $PART;
    UPDATE fragment SET has_parts = 1 WHERE new.kind = $HAS_PARTS AND local = new.key;
    UPDATE part_users SET users = users - 1 WHERE new.kind = $RELEASE AND part IN (
        SELECT part FROM chunk_part
        WHERE chunk = coalesce(new.number, (SELECT chunk FROM entry WHERE key = new.key)));
    DELETE FROM part WHERE new.kind = $RELEASE AND id IN (
        SELECT part FROM chunk_part CROSS JOIN part_users USING (part)
        WHERE chunk = coalesce(new.number, (SELECT chunk FROM entry WHERE key = new.key))
        AND users <= 0);
    DELETE FROM part_users WHERE new.kind = $RELEASE AND users <= 0 AND part IN (
        SELECT part FROM chunk_part
        WHERE chunk = coalesce(new.number, (SELECT chunk FROM entry WHERE key = new.key)));
    INSERT INTO chunk SELECT new.number, new.head, substr(body, new.start + 1, new.size)
    FROM part WHERE new.kind = $MOVE_PART AND id = new.source;
    INSERT OR IGNORE INTO entry
    SELECT new.key, new.line, new.state, new.size, new.due_at, coalesce(new.number, 0), new.data,
        NULL
    WHERE new.kind = $LOSE OR new.kind = $MOVE_PART;
END;
