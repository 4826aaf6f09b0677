CREATE TABLE dlock_rows (
    k TEXT COLLATE "C" NOT NULL,
    part TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    mode SMALLINT NOT NULL,
    session BIGINT NOT NULL,
    xact BIGINT NOT NULL,
    hold TEXT COLLATE "C" NOT NULL,
    note TEXT COLLATE "C" NOT NULL,
    long_key TEXT COLLATE "C" NOT NULL,
    broken_hold TEXT COLLATE "C",
    broken_record TEXT COLLATE "C",
    PRIMARY KEY (k, part)
) WITH (fillfactor = 50)
