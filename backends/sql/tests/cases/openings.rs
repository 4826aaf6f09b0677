//! Several openings of one store at once, on tables that nobody has made yet: the processes of a service that start together.

use dlock::Registry;
use futures::future::join_all;

use super::kit::Database;

row_cases! {
    openings_at_once_of_new_tables_all_succeed
}

/// The server may undo a statement of one opening because of another one. On MariaDB the catalogue hides a table for a moment while
/// somebody makes it.
async fn openings_at_once_of_new_tables_all_succeed(database: Database) {
    for round in 0..4 {
        for way in ["lease", "named", "row", "lease&layout=shedlock"] {
            let table = match way.ends_with("shedlock") {
                true => format!("&shedlock_table=jobs_{round}&shedlock_create=yes"),
                false => String::new(),
            };
            let url = format!("{}?way={way}&table_prefix=new{round}_{}_{table}", database.url(), &way[..3]);
            let registries: Vec<_> = (0..8).map(|_| Registry::new()).collect();
            for opened in join_all(registries.iter().map(|registry| registry.connect("store", &url))).await {
                opened.unwrap_or_else(|error| panic!("round {round}, {way}: {error}"));
            }
        }
    }
}
