-- To which namespace the store belongs: no row until it has been told. A catalogue with another id
-- knows nothing about what is in here, so it must neither serve nor remove any of it.
CREATE TABLE namespace (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    namespace_id TEXT NOT NULL
) STRICT;
-- The highest entity id of any fragment that was ever made here, also when it is gone: whatever copy
-- of the catalogue comes, it must not give out an id again.
CREATE TABLE entity_ids (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    highest INTEGER NOT NULL
) STRICT;
INSERT INTO entity_ids SELECT 1, coalesce(max(entity_id), 0) FROM fragment;
