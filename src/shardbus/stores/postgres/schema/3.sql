-- Version 3 of the schema: the pipelines of a cluster, in the first of its databases.

-- A node that takes a pipeline raises `epoch`, and then `beat` while it runs the pipeline. `report` is
-- the owner's report about it. `document` is its definition.
CREATE TABLE pipeline (
    name text PRIMARY KEY,
    document text NOT NULL,
    intent text NOT NULL,
    owner text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    beat bigint NOT NULL DEFAULT 0,
    report text NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);
