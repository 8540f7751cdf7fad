-- What a fragment keeps beside its messages, by kind and key: few and small, loaded with it.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX record_key ON record (local, kind, key);

-- Payloads that several chunks have in common, most often copies of a message in several
-- subscriptions. Such a chunk has for its body no bytes but a text, the JSON list of its parts.
CREATE TABLE part (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- How many chunks have a part; it goes with the last. Apart from the bytes, because SQLite writes a
-- row as a whole.
CREATE TABLE part_users (
    part INTEGER PRIMARY KEY,
    users INTEGER NOT NULL
);
CREATE VIEW chunk_part AS
SELECT chunk.id AS chunk, value AS part FROM chunk, json_each(
    CASE WHEN typeof(body) = 'text' AND json_valid(body) THEN body ELSE '[]' END);

-- Whether it ever had a chunk with parts: where it had not, a chunk goes without a look for them.
ALTER TABLE fragment ADD COLUMN has_parts INTEGER NOT NULL DEFAULT 0;

-- Up to 15 as before, but a chunk that is kept is kept with its parts.
-- 16: a record (key: the fragment; count: its kind; name: its key; without data it goes).
-- 17: a new part (chunk: its number; count: its users). 18: the fragment has parts from now on.
-- 19: a chunk is about to go, named by its number or by the key of its entry.
-- 20: as 6, but body is the part that the payload is copied from.
DROP TRIGGER work_other;
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
    INSERT OR IGNORE INTO evidence
    SELECT new.key, head, CASE WHEN typeof(body) = 'text' THEN (
        SELECT CAST(group_concat(part.body, '') AS BLOB)
        FROM chunk_part CROSS JOIN part ON part.id = chunk_part.part
        WHERE chunk_part.chunk = new.chunk) ELSE body END
    FROM chunk WHERE new.kind = 14 AND id = new.chunk;
    DELETE FROM record
    WHERE new.kind = 16 AND local = new.key AND kind = new.count AND key = new.name;
    INSERT INTO record (local, kind, key, data)
    SELECT new.key, new.count, new.name, new.data WHERE new.kind = 16 AND new.data IS NOT NULL;
    INSERT INTO part SELECT new.chunk, new.body WHERE new.kind = 17;
    INSERT INTO part_users SELECT new.chunk, new.count WHERE new.kind = 17;
    UPDATE fragment SET has_parts = 1 WHERE new.kind = 18 AND local = new.key;
    UPDATE part_users SET users = users - 1 WHERE new.kind = 19 AND part IN (
        SELECT part FROM chunk_part
        WHERE chunk = coalesce(new.chunk, (SELECT chunk FROM entry WHERE key = new.key)));
    DELETE FROM part WHERE new.kind = 19 AND id IN (
        SELECT part FROM chunk_part CROSS JOIN part_users USING (part)
        WHERE chunk = coalesce(new.chunk, (SELECT chunk FROM entry WHERE key = new.key))
        AND users <= 0);
    DELETE FROM part_users WHERE new.kind = 19 AND users <= 0 AND part IN (
        SELECT part FROM chunk_part
        WHERE chunk = coalesce(new.chunk, (SELECT chunk FROM entry WHERE key = new.key)));
    INSERT INTO chunk SELECT new.chunk, new.head, substr(body, new.name + 1, new.size)
    FROM part WHERE new.kind = 20 AND id = new.body;
    INSERT OR IGNORE INTO entry
    SELECT new.key, new.count, new.flag, new.size, new.due_at, coalesce(new.chunk, 0), new.data,
        NULL
    WHERE new.kind = 15 OR new.kind = 20;
END;
