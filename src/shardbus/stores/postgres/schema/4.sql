-- Version 4 of the schema: the jobs of a cluster, in the first of its databases.

-- As `pipeline`. `document` is the job as it began, `report` how far it is.
CREATE TABLE job (
    name text PRIMARY KEY,
    document text NOT NULL,
    intent text NOT NULL,
    owner text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    beat bigint NOT NULL DEFAULT 0,
    report text NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- The JSON lines of an export or a copy, in pieces: `at` is the position of the first byte.
CREATE TABLE job_lines (
    job text NOT NULL REFERENCES job ON DELETE CASCADE,
    at bigint NOT NULL,
    piece bytea NOT NULL,
    PRIMARY KEY (job, at)
);
