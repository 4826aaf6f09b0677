CREATE UNLOGGED TABLE dlock_read_write (
    k TEXT COLLATE "C" NOT NULL,
    session BIGINT NOT NULL,
    lock_id TEXT COLLATE "C" NOT NULL,
    is_write BOOLEAN NOT NULL,
    token BIGINT NOT NULL,
    note TEXT COLLATE "C" NOT NULL,
    hold TEXT COLLATE "C" NOT NULL,
    used_us BIGINT NOT NULL,
    broken_hold TEXT COLLATE "C",
    broken_record TEXT COLLATE "C",
    PRIMARY KEY (k, session)
) WITH (fillfactor = 50)
