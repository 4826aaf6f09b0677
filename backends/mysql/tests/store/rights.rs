//! Accounts with fewer rights than locks need.

use dlock::backends::mysql::{Builder, named};
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::text_of;
use sqlx::{AssertSqlSafe, Executor};

use crate::named_kit::{TTL, open};
use crate::server::{Database, Kind};

named_cases! {
    on both:
    a_right_that_is_missing_is_named_when_the_store_is_opened
    opening_leaves_nothing
    an_account_that_is_locked_or_used_up_is_never_shown
}

async fn a_right_that_is_missing_is_named_when_the_store_is_opened(database: Database) {
    drop(open(&database).await);
    let mut root = database.connect().await;
    for (number, (granted, missing)) in [
        ("", Some("all")),
        ("SELECT", Some("INSERT, UPDATE")),
        ("SELECT, INSERT", Some("UPDATE")),
        ("INSERT, UPDATE", Some("SELECT")),
        // All that is needed.
        ("SELECT, INSERT, UPDATE", None),
    ]
    .into_iter()
    .enumerate()
    {
        let account = format!("canary{number}_{:08x}", fastrand::u32(..));
        root.execute(AssertSqlSafe(format!("CREATE USER '{account}'@'%'"))).await.unwrap();
        if !granted.is_empty() {
            let grant = format!("GRANT {granted} ON {}.dlock_named TO '{account}'@'%'", database.name);
            root.execute(AssertSqlSafe(grant)).await.unwrap();
            let meta = format!("GRANT SELECT, INSERT, UPDATE ON {}.dlock_meta TO '{account}'@'%'", database.name);
            root.execute(AssertSqlSafe(meta)).await.unwrap();
        }
        let opened = named::open(&database.url_of(&account), &Clock::system()).await;
        match missing {
            None => {
                let store = opened.unwrap();
                let hold = take(&store, &database.claim("a", TTL)).await;
                assert_eq!(store.look(&hold.claim.key).await.unwrap().note().cloned().unwrap(), hold.claim.note);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
            Some(missing) => {
                let error = opened.err().unwrap_or_else(|| panic!("opened with no more than: {granted}"));
                assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{granted}: {error:?}");
                let text = error.to_string();
                // Without any right the server does not even let it see the database.
                let named = text.contains(&format!("table: {missing};"));
                assert!(named || granted.is_empty(), "{granted}: {text}");
                assert!(!text_of(&error).contains("canary"), "{error:?}");
            }
        }
        root.execute(AssertSqlSafe(format!("DROP USER '{account}'@'%'"))).await.unwrap();
    }
}

async fn opening_leaves_nothing(database: Database) {
    let _store = open(&database).await;
    let mut root = database.connect().await;
    let (rows,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM dlock_named").fetch_one(&mut root).await.unwrap();
    assert_eq!(rows, 0);
}

/// The server names the account in each of these errors.
async fn an_account_that_is_locked_or_used_up_is_never_shown(database: Database) {
    let mut root = database.connect().await;
    let account = format!("canary_{:08x}", fastrand::u32(..));
    let (user, on) = (format!("'{account}'@'%'"), format!("{}.*", database.name));
    let mut change = async |sql: &str| {
        root.execute(AssertSqlSafe(sql.replace("{user}", &user).replace("{on}", &on))).await.unwrap();
    };
    // The server counts the connections of an account that has a limit.
    change("CREATE USER {user} WITH MAX_USER_CONNECTIONS 100").await;
    change("GRANT ALL ON {on} TO {user}").await;
    let refused = async || {
        let error = named::open(&database.url_of(&account), &Clock::system()).await.err().unwrap();
        assert!(!text_of(&error).contains("canary"), "{}", text_of(&error));
        error
    };
    let _store = named::open(&database.url_of(&account), &Clock::system()).await.unwrap();
    change("ALTER USER {user} WITH MAX_USER_CONNECTIONS 1").await;
    let error = refused().await;
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    change("ALTER USER {user} WITH MAX_USER_CONNECTIONS 100").await;
    change("ALTER USER {user} ACCOUNT LOCK").await;
    let error = refused().await;
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    change("DROP USER {user}").await;
}

/// After wrong passwords. MariaDB counts them for the whole server, so the server is the test's own.
async fn an_account_that_is_locked_by_wrong_passwords_is_never_shown(kind: Kind) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "alone").await;
    let mut root = database.connect().await;
    let (limits, options) = match kind {
        Kind::MariaDb => ("", ""),
        Kind::MySql => (" FAILED_LOGIN_ATTEMPTS 2 PASSWORD_LOCK_TIME 1", "?tls=require"),
    };
    root.execute(AssertSqlSafe(format!("CREATE USER 'canary'@'%' IDENTIFIED BY 'right'{limits}"))).await.unwrap();
    if kind == Kind::MariaDb {
        root.execute("SET GLOBAL max_password_errors = 2").await.unwrap();
    }
    let mut codes = Vec::new();
    for _ in 0..4 {
        let url = format!("{}{options}", database.url_of("canary:wrong"));
        let error = named::open(&url, &Clock::system()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
        assert!(!text_of(&error).contains("canary"), "{}", text_of(&error));
        codes.push(error.code().unwrap().to_owned());
    }
    assert!(codes[0] == "1045" && codes[3] != "1045", "it was never locked: {codes:?}");
}

/// MySQL's own kind of password. The client sends it in full at the first login of an account, and so never without TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_needs_tls_is_refused_without_it_and_told_what_to_do() {
    let database = Database::create(&Kind::MySql.shared().unwrap(), "needs_tls").await;
    let account = format!("canary_{:08x}", fastrand::u32(..));
    database.make_account(&account, "canary-secret").await;
    let url = |options: &str| format!("{}?{options}", database.url_of(&format!("{account}:canary-secret")));
    for way in ["lease", "named", "row"] {
        let open = async |options: &str| Builder::url(&url(options)).unwrap().open(&Clock::system()).await;
        for options in [format!("way={way}"), format!("way={way}&tls=off")] {
            let error = open(&options).await.map(drop).unwrap_err();
            let need = "an encrypted connection for this account (tls=verify)".to_owned();
            assert_eq!(*error.kind(), ErrorKind::Unsupported { need }, "{options}: {error}");
            assert!(!error.is_retryable(), "{options}: {error}");
            let text = error.to_string();
            assert!(text.contains("caching_sha2_password") && text.contains("add tls=verify"), "{options}: {text}");
            assert!(!text_of(&error).contains("canary"), "{}", text_of(&error));
        }
    }
    drop(Builder::url(&url("tls=require")).unwrap().open(&Clock::system()).await.unwrap());
}

mod alone {
    #[tokio::test]
    async fn mariadb_never_shows_an_account_that_it_locks() {
        super::an_account_that_is_locked_by_wrong_passwords_is_never_shown(super::Kind::MariaDb).await;
    }

    #[tokio::test]
    async fn mysql_never_shows_an_account_that_it_locks() {
        super::an_account_that_is_locked_by_wrong_passwords_is_never_shown(super::Kind::MySql).await;
    }
}
