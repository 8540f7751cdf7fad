-- Fragments of this file. `local` is what they are called in keys (key = local << 43 | counter).
CREATE TABLE fragment (
    local INTEGER PRIMARY KEY,
    entity_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    counters BLOB NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX fragment_name ON fragment (entity_id, number) WHERE is_deleted = 0;

-- The bytes. Ids rise in the order of commits, so that what is written together lies together,
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

-- Messages that settling, expiry or damage changed. Each left its chunk for one of its own; 0 if
-- its bytes are lost.
CREATE TABLE entry (
    key INTEGER PRIMARY KEY,
    line INTEGER NOT NULL,
    state INTEGER NOT NULL,
    size INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX entry_line ON entry (line, state);
CREATE INDEX entry_due ON entry (key >> 43, due_at) WHERE due_at > 0;

-- Chunks with a damaged head, as they were when their messages were set aside.
CREATE TABLE evidence (
    key INTEGER PRIMARY KEY,
    head BLOB,
    body BLOB
);

-- A commit is one INSERT of many rows into this view: a single statement is a transaction of its
-- own, and Python gives up the interpreter lock once per statement instead of once per row.
CREATE VIEW work AS
SELECT 0 AS kind, 0 AS key, 0 AS chunk, 0 AS count, 0 AS size, 0 AS due_at, 0 AS flag,
    x'' AS head, x'' AS body;

CREATE TRIGGER work_append INSTEAD OF INSERT ON work WHEN new.kind = 1 BEGIN
    INSERT INTO chunk VALUES (new.chunk, new.head, new.body);
    INSERT INTO recent VALUES (new.chunk, new.key, new.count, new.size, new.due_at, new.flag);
END;

CREATE TRIGGER work_counters INSTEAD OF INSERT ON work WHEN new.kind = 2 BEGIN
    UPDATE fragment SET counters = new.head WHERE local = new.key;
END;

CREATE TRIGGER work_gap INSTEAD OF INSERT ON work WHEN new.kind = 3 BEGIN
    INSERT OR REPLACE INTO gap VALUES (new.chunk, new.head);
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

-- count: the line; flag: the state. A message that is here already was taken for a part of its
-- chunk because the gap of the chunk is damaged; then what is here is right.
CREATE TRIGGER work_enter INSTEAD OF INSERT ON work WHEN new.kind = 6 BEGIN
    INSERT OR IGNORE INTO entry
    VALUES (new.key, new.count, new.flag, new.size, new.due_at, new.chunk, new.head);
END;

CREATE TRIGGER work_change INSTEAD OF INSERT ON work WHEN new.kind = 7 BEGIN
    UPDATE entry SET line = new.count, state = new.flag, due_at = new.due_at, data = new.head
    WHERE key = new.key;
END;

CREATE TRIGGER work_keep INSTEAD OF INSERT ON work WHEN new.kind = 8 BEGIN
    INSERT INTO chunk VALUES (new.chunk, new.head, new.body);
END;

-- flag: the chunk that the payload is copied from; count: where in its body it begins.
CREATE TRIGGER work_copy INSTEAD OF INSERT ON work WHEN new.kind = 9 BEGIN
    INSERT INTO chunk SELECT new.chunk, new.head, substr(body, new.count + 1, new.size)
    FROM chunk WHERE id = new.flag;
END;

CREATE TRIGGER work_forget INSTEAD OF INSERT ON work WHEN new.kind = 10 BEGIN
    DELETE FROM chunk WHERE id = (SELECT chunk FROM entry WHERE key = new.key);
    DELETE FROM entry WHERE key = new.key;
END;

CREATE TRIGGER work_evidence INSTEAD OF INSERT ON work WHEN new.kind = 11 BEGIN
    INSERT OR IGNORE INTO evidence SELECT new.key, head, body FROM chunk WHERE id = new.chunk;
END;
