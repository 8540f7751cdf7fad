-- Messages that nobody sees until they are published: packed, in the pieces in which they came.
CREATE TABLE stage (
    id INTEGER PRIMARY KEY,
    local INTEGER NOT NULL,
    stage BLOB NOT NULL,
    piece INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX stage_piece ON stage (local, stage, piece);
