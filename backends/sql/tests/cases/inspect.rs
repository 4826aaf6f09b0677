//! The operator's view: names of rows, listings, and the state of the server.

use dlock_contract::{Backend, Inspect, Listing};
use dlock_testkit::holds::take;

use super::kit::{Database, TTL, key};

row_cases! {
    a_key_is_identified_by_the_name_of_its_row
    a_listing_pages_through_long_and_short_keys
    a_page_never_has_more_rows_than_its_limit
    a_server_that_can_take_locks_shows_its_product_and_version
}

async fn a_key_is_identified_by_the_name_of_its_row(database: Database) {
    let store = database.store().await;
    for text in ["a", &"x".repeat(300), &"é".repeat(600), "a'b\\c\"d"] {
        let hold = take(&store, &database.claim(text, TTL)).await;
        let named = store.identify(&hold.claim.key).unwrap().names();
        assert_eq!(database.held().await, named, "{text}");
        store.release(&hold).await.unwrap();
    }
}

async fn a_listing_pages_through_long_and_short_keys(database: Database) {
    let store = database.store().await;
    let mut wanted = Vec::new();
    for number in 0..15 {
        // The long ones differ at their ends only.
        for text in [format!("s{number}"), format!("{}{number}", "l".repeat(500))] {
            let hold = take(&store, &database.claim(&text, TTL)).await;
            // A free row in between is no entry.
            if number % 5 != 0 {
                wanted.push(hold.claim.key.clone());
            } else {
                store.release(&hold).await.unwrap();
            }
        }
    }
    for limit in [1, 4, 100] {
        let mut found = pages(&store, Listing::of(database.name.clone()).with(|listing| listing.limit = limit)).await;
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "pages of {limit}");
    }
    // A prefix that is longer than the beginning of a long name.
    let prefix = "l".repeat(400);
    let full = key(&database, &prefix).as_str().split_once(":<").unwrap().1.trim_end_matches('>').to_owned();
    let listing = Listing::of(database.name.clone()).with(|listing| {
        listing.prefix = format!("<{full}");
        listing.limit = 4;
    });
    assert_eq!(pages(&store, listing).await.len(), 12);
    assert!(pages(&store, Listing::of("elsewhere")).await.is_empty());
}

async fn pages(store: &super::kit::Store, mut listing: Listing) -> Vec<dlock::LockKey> {
    let mut found = Vec::new();
    for _ in 0..100 {
        let page = store.list(&listing).await.unwrap();
        assert!(page.locks.len() <= listing.limit());
        found.extend(page.locks);
        listing.after = page.next;
        if listing.after.is_none() {
            return found;
        }
    }
    panic!("the pages never end");
}

async fn a_page_never_has_more_rows_than_its_limit(database: Database) {
    let store = database.store().await;
    for number in 0..9 {
        take(&store, &database.claim(&number.to_string(), TTL)).await;
    }
    let listing = Listing::of(database.name.clone()).with(|listing| listing.limit = 3);
    let page = store.list(&listing).await.unwrap();
    assert_eq!(page.locks.len(), 3);
    assert!(page.next.is_some());
}

async fn a_server_that_can_take_locks_shows_its_product_and_version(database: Database) {
    let health = database.store().await.ready().await.unwrap();
    let version = health.version.unwrap();
    let server = database.lines("SELECT VERSION()").await.remove(0);
    let (product, number) = version.split_once(' ').unwrap();
    assert!(["MariaDB", "MySQL", "PostgreSQL"].contains(&product), "{version}");
    // PostgreSQL says more in the one than in the other.
    assert!(server.contains(number.split(' ').next().unwrap()), "{version} of {server}");
    assert_eq!(product == "MariaDB", server.contains("MariaDB"));
    assert_eq!(health.role.as_deref(), Some("primary"));
    assert_eq!(health.findings, [""; 0]);
}
