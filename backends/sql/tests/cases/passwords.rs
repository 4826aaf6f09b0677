//! Accounts whose passwords have characters with a meaning in URLs, in statements or in neither.

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::text_of;

use super::kit::{Database, TTL, try_open};

row_cases! {
    a_password_may_have_any_character
}

async fn a_password_may_have_any_character(database: Database) {
    let options = database.for_passwords().await;
    for (number, (password, encoded)) in [
        ("c@n/a:r?y#%", "c%40n%2Fa%3Ar%3Fy%23%25"),
        ("with blank", "with%20blank"),
        ("plus+and&more=", "plus%2Band%26more%3D"),
        ("\"double' quotes\\", "%22double%27%20quotes%5C"),
        ("geheim\u{e9}\u{4e2d}", "geheim%C3%A9%E4%B8%AD"),
        ("[1,2]", "%5B1%2C2%5D"),
    ]
    .into_iter()
    .enumerate()
    {
        let account = format!("p{number}_{:08x}", fastrand::u32(..));
        database.make_account(&account, password).await;
        let url = |password: &str| format!("{}?{options}", database.url_of(&format!("{account}:{password}")));
        let store = try_open(&url(encoded)).await.unwrap_or_else(|error| panic!("{password}: {error}"));
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert!(!format!("{store:?}").contains(&account), "{store:?}");
        // The server looks at all of it.
        let error = try_open(&url(&format!("{encoded}x"))).await.unwrap_err();
        assert!(!text_of(&error).contains(password), "{}", text_of(&error));
    }
}
