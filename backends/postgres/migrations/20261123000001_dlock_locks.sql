CREATE TABLE dlock_locks (
    k TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner BYTEA,
    token BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    note TEXT COLLATE "C" NOT NULL,
    hold TEXT COLLATE "C" NOT NULL,
    long_key TEXT COLLATE "C",
    run_boundary BIGINT,
    run_open SMALLINT NOT NULL DEFAULT 0,
    run_owner BYTEA,
    run_started BIGINT,
    good_started BIGINT,
    good_took BIGINT,
    good_note TEXT COLLATE "C",
    expires_day INTEGER GENERATED ALWAYS AS ((expires_us / 86400000000)::integer) STORED
) WITH (fillfactor = 50);
CREATE INDEX dlock_locks_expires_day ON dlock_locks (expires_day, k)
