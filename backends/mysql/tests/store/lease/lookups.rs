//! How the server finds the rows of a renewal: by their names. If it reads a small table as a whole, it locks each row of it.

use dlock_contract::{Backend, Standing};
use dlock_testkit::holds::take;
use dlock_testkit::servers::Instance;

use super::kit::{Database, TTL};

cases_with_own_server! {
    a_locked_row_of_another_key_does_not_delay_a_renewal_of_several
}

async fn a_locked_row_of_another_key_does_not_delay_a_renewal_of_several(server: Instance, database: Database) {
    let (store, mut holds, mut somebody) = (database.store().await, Vec::new(), Vec::new());
    for number in 0..6 {
        let locked = take(&store, &database.claim(&format!("{number} locked"), TTL)).await;
        somebody.push(database.lock_row(locked.claim.key.as_str()).await);
        holds.push(take(&store, &database.claim(&number.to_string(), TTL)).await);
    }
    // No other test uses the server, so its counter is this one's.
    let waits = || server.ask("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").unwrap();
    let before = waits();
    for answer in store.renew(&holds.iter().collect::<Vec<_>>()).await {
        assert!(matches!(answer, Ok(Standing::Renewed(_))), "{answer:?}");
    }
    assert_eq!(waits(), before, "the renewal waited for a row of another key");
}
