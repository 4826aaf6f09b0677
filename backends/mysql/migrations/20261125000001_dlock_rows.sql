CREATE TABLE dlock_rows (
    k VARBINARY(255) NOT NULL,
    part VARBINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    mode SMALLINT NOT NULL,
    session BIGINT NOT NULL,
    xact BIGINT NOT NULL,
    hold VARBINARY(16) NOT NULL,
    note VARBINARY(256) NOT NULL,
    long_key VARBINARY(4096) NOT NULL,
    broken_hold VARBINARY(16),
    broken_record VARBINARY(256),
    PRIMARY KEY (k, part)
) ENGINE=InnoDB
