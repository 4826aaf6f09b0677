CREATE TABLE dlock_locks (
    k VARBINARY(255) NOT NULL PRIMARY KEY,
    owner VARBINARY(16),
    token BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    note VARBINARY(256) NOT NULL,
    hold VARBINARY(16) NOT NULL,
    long_key VARBINARY(4096),
    run_boundary BIGINT,
    run_open SMALLINT NOT NULL DEFAULT 0,
    run_owner VARBINARY(16),
    run_started BIGINT,
    good_started BIGINT,
    good_took BIGINT,
    good_note VARBINARY(256),
    expires_day INT GENERATED ALWAYS AS (expires_us DIV 86400000000) STORED,
    KEY expires_day (expires_day, k)
) ENGINE=InnoDB COMMENT='MERGE_THRESHOLD=1'
