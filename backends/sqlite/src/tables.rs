//! The tables, by version. Tables of a version are never changed; later versions only add to them.

/// Version 1. The trigger makes a grant and its token one statement.
pub(super) const FIRST: &str = "\
    CREATE TABLE dlock_schema (version INTEGER NOT NULL) STRICT;
    CREATE TABLE dlock_fence (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        token INTEGER NOT NULL CHECK (token <= bound),
        bound INTEGER NOT NULL CHECK (bound < 9007199254740992),
        boot TEXT NOT NULL
    ) STRICT;
    CREATE TABLE dlock_locks (
        k TEXT PRIMARY KEY,
        owner BLOB NOT NULL,
        token INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        boot TEXT NOT NULL,
        note TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER dlock_granted AFTER INSERT ON dlock_locks BEGIN
        UPDATE dlock_fence SET token = new.token;
    END;
    CREATE TRIGGER dlock_taken_over AFTER UPDATE OF token ON dlock_locks WHEN new.token <> old.token BEGIN
        UPDATE dlock_fence SET token = new.token;
    END;
    INSERT INTO dlock_schema (version) VALUES (1);";

/// Version 2: locks that several hold, periods, and locks kept after their release.
///
/// The row in `dlock_locks` is for the key as a whole. Its owner has 16 bytes, or none if the lock is only kept. If the
/// lock has several holders, the owner is the name of their family (`rw`, `p3`), and `expires` is the end of the last
/// lease. So every mode sees by one read of one row whether another family has the key.
pub(super) const SECOND: &str = "\
    -- Not `owner = x''`: every statement with `owner = ?` would be prepared anew for each value.
    CREATE INDEX dlock_kept ON dlock_locks (expires) WHERE length(owner) = 0;

    CREATE TABLE dlock_shares (
        k TEXT NOT NULL,
        slot INTEGER NOT NULL,
        family BLOB NOT NULL,
        alone INTEGER NOT NULL,
        owner BLOB NOT NULL,
        token INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        boot TEXT NOT NULL,
        note TEXT NOT NULL,
        PRIMARY KEY (k, slot)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX dlock_share_owners ON dlock_shares (k, owner);
    CREATE INDEX dlock_kept_shares ON dlock_shares (expires) WHERE length(owner) = 0;
    CREATE TABLE dlock_writers (
        k TEXT NOT NULL,
        owner BLOB NOT NULL,
        since INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        boot TEXT NOT NULL,
        PRIMARY KEY (k, owner)
    ) STRICT, WITHOUT ROWID;

    CREATE TRIGGER dlock_share_granted AFTER INSERT ON dlock_shares BEGIN
        INSERT INTO dlock_locks (k, owner, token, expires, boot, note)
        VALUES (new.k, new.family, new.token, new.expires, new.boot, '')
        ON CONFLICT (k) DO UPDATE SET
            expires = CASE WHEN owner = excluded.owner AND boot = excluded.boot
                THEN max(expires, excluded.expires) ELSE excluded.expires END,
            owner = excluded.owner, token = excluded.token, boot = excluded.boot, note = excluded.note;
        DELETE FROM dlock_writers WHERE k = new.k AND owner = new.owner;
    END;
    CREATE TRIGGER dlock_share_taken_over AFTER UPDATE OF token ON dlock_shares WHEN new.token <> old.token BEGIN
        INSERT INTO dlock_locks (k, owner, token, expires, boot, note)
        VALUES (new.k, new.family, new.token, new.expires, new.boot, '')
        ON CONFLICT (k) DO UPDATE SET
            expires = CASE WHEN owner = excluded.owner AND boot = excluded.boot
                THEN max(expires, excluded.expires) ELSE excluded.expires END,
            owner = excluded.owner, token = excluded.token, boot = excluded.boot, note = excluded.note;
        DELETE FROM dlock_writers WHERE k = new.k AND owner = new.owner;
    END;
    CREATE TRIGGER dlock_share_moved AFTER UPDATE OF expires ON dlock_shares WHEN new.token = old.token BEGIN
        UPDATE dlock_locks SET expires = CASE WHEN new.expires >= expires THEN new.expires ELSE
            (SELECT max(s.expires) FROM dlock_shares AS s WHERE s.k = new.k AND s.boot = new.boot) END
        WHERE k = new.k AND owner = new.family AND (new.expires > expires OR old.expires >= expires);
    END;
    CREATE TRIGGER dlock_share_gone AFTER DELETE ON dlock_shares BEGIN
        UPDATE dlock_locks SET expires = coalesce(
            (SELECT max(s.expires) FROM dlock_shares AS s WHERE s.k = old.k AND s.boot = old.boot), 0)
        WHERE k = old.k AND owner = old.family AND boot = old.boot AND old.expires >= expires;
        DELETE FROM dlock_locks WHERE k = old.k AND owner = old.family
            AND NOT EXISTS (SELECT 1 FROM dlock_shares AS s WHERE s.k = old.k);
    END;
    CREATE TRIGGER dlock_shares_outlived AFTER UPDATE OF owner ON dlock_locks
    WHEN length(old.owner) < 16 AND new.owner <> old.owner BEGIN
        DELETE FROM dlock_shares WHERE k = new.k AND family = old.owner;
    END;
    CREATE TRIGGER dlock_writer_waits AFTER INSERT ON dlock_writers BEGIN
        DELETE FROM dlock_writers WHERE expires <= new.since OR boot <> new.boot;
    END;

    CREATE TABLE dlock_runs (
        k TEXT PRIMARY KEY,
        boundary INTEGER NOT NULL,
        open INTEGER NOT NULL,
        owner BLOB NOT NULL,
        token INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        boot TEXT NOT NULL,
        note TEXT NOT NULL,
        started INTEGER NOT NULL,
        good_started INTEGER,
        good_took INTEGER,
        good_note TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER dlock_run_first AFTER INSERT ON dlock_runs BEGIN
        INSERT INTO dlock_locks (k, owner, token, expires, boot, note)
        VALUES (new.k, new.owner, new.token, new.expires, new.boot, new.note)
        ON CONFLICT (k) DO UPDATE SET owner = excluded.owner, token = excluded.token,
            expires = excluded.expires, boot = excluded.boot, note = excluded.note;
    END;
    CREATE TRIGGER dlock_run_started AFTER UPDATE OF token ON dlock_runs BEGIN
        INSERT INTO dlock_locks (k, owner, token, expires, boot, note)
        VALUES (new.k, new.owner, new.token, new.expires, new.boot, new.note)
        ON CONFLICT (k) DO UPDATE SET owner = excluded.owner, token = excluded.token,
            expires = excluded.expires, boot = excluded.boot, note = excluded.note;
    END;
    CREATE TRIGGER dlock_run_ended AFTER UPDATE OF open ON dlock_runs
    WHEN new.owner = old.owner AND old.open = 1 AND new.open = 0 BEGIN
        DELETE FROM dlock_locks WHERE k = new.k AND owner = new.owner AND new.expires = 0;
        UPDATE dlock_locks SET owner = x'', expires = new.expires
        WHERE k = new.k AND owner = new.owner AND new.expires <> 0;
    END;
    UPDATE dlock_schema SET version = 2;";

/// Version 3: who broke a hold, by the id of the hold.
pub(super) const THIRD: &str = "\
    CREATE TABLE dlock_broken (
        hold TEXT PRIMARY KEY,
        record TEXT NOT NULL,
        expires INTEGER NOT NULL,
        now INTEGER NOT NULL,
        boot TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER dlock_record_left AFTER INSERT ON dlock_broken BEGIN
        DELETE FROM dlock_broken WHERE expires <= new.now OR boot <> new.boot;
    END;
    UPDATE dlock_schema SET version = 3;";
