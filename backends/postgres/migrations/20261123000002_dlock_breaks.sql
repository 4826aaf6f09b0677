CREATE TABLE dlock_breaks (
    hold TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    record TEXT COLLATE "C" NOT NULL,
    until_us BIGINT NOT NULL
)
