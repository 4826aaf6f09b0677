CREATE TABLE dlock_named (
    k VARBINARY(255) NOT NULL PRIMARY KEY,
    lock_id VARBINARY(64) NOT NULL,
    token BIGINT NOT NULL,
    session BIGINT NOT NULL,
    note VARBINARY(256) NOT NULL,
    hold VARBINARY(16) NOT NULL,
    long_key VARBINARY(4096),
    broken_hold VARBINARY(16),
    broken_record VARBINARY(256)
) ENGINE=InnoDB
