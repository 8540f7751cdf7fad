-- What a fragment keeps beside its messages, by kind and key: few and small, loaded with it.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX record_key ON record (local, kind, key);

-- key: the fragment; count: the kind; name: the key; without data the record goes.
CREATE TRIGGER work_record INSTEAD OF INSERT ON work WHEN new.kind = 19 BEGIN
    DELETE FROM record WHERE local = new.key AND kind = new.count AND key = new.name;
    INSERT INTO record (local, kind, key, data)
    SELECT new.key, new.count, new.name, new.data WHERE new.data IS NOT NULL;
END;
