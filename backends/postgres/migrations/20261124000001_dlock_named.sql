CREATE UNLOGGED TABLE dlock_named (
    k TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    lock_id TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    session BIGINT NOT NULL,
    note TEXT COLLATE "C" NOT NULL,
    hold TEXT COLLATE "C" NOT NULL,
    long_key TEXT COLLATE "C",
    used_us BIGINT NOT NULL,
    broken_hold TEXT COLLATE "C",
    broken_record TEXT COLLATE "C"
) WITH (fillfactor = 50)
