//! The choice of the way in the URL, as programs make it.

use dlock::ErrorKind;
use dlock::Registry;

use super::kit::Database;

named_cases! {
    on both:
    a_url_without_a_way_means_lease_rows_and_way_named_means_get_lock
    a_named_lock_takes_no_option_of_a_pool
}

async fn a_url_without_a_way_means_lease_rows_and_way_named_means_get_lock(database: Database) {
    let tables = async || {
        let mut tables = database.lines("SHOW TABLES").await;
        tables.sort();
        tables
    };
    let leases = ["dlock_breaks", "dlock_locks", "dlock_meta"];
    for (url, made) in [
        (format!("{}?way=named", database.url()), &["dlock_meta", "dlock_named"][..]),
        (database.url(), &leases),
        (format!("{}?way=lease", database.url().replace("mysql://", "mariadb://")), &leases),
    ] {
        Registry::new().connect("default", &url).await.unwrap();
        assert_eq!(tables().await, made, "{url}");
        for table in made {
            database.change(&format!("DROP TABLE {table}")).await;
        }
    }
}

async fn a_named_lock_takes_no_option_of_a_pool(database: Database) {
    for option in ["max_connections=2", "idle_timeout=1s", "max_lifetime=1s"] {
        let url = format!("{}?way=named&{option}", database.url());
        let error = Registry::new().connect("default", &url).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{option}: {error}");
        let name = option.split_once('=').unwrap().0;
        assert!(error.to_string().contains(name) && error.to_string().contains("way=lease"), "{error}");
    }
}
