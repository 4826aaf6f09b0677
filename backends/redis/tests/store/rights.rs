//! The rights that backends/redis/README.md lists for Redis accounts: the tests use that very text.

const PAGE: &str = include_str!("../../README.md");

/// Lines of the block, counted from 1 as the text below it does: names and channels, what every lock needs, waiting in
/// order, modes, the look at the server.
pub(crate) fn lines(numbers: impl IntoIterator<Item = usize>) -> String {
    let (_, block) = PAGE.split_once("ACL SETUSER app on >password ").expect("the block is there");
    let lines: Vec<_> = block.split_once("```").expect("it ends").0.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    numbers.into_iter().map(|number| lines[number - 1]).collect::<Vec<_>>().join(" ")
}

/// Does the page say that this is needed too, in these very words?
#[track_caller]
pub(crate) fn also(rights: &str) -> &str {
    assert!(PAGE.contains(&format!("`{rights}`")), "backends/redis/README.md does not list {rights}");
    rights
}

/// For a cluster.
pub(crate) fn of_cluster(numbers: impl IntoIterator<Item = usize>) -> String {
    let (others, those) = (also("+spublish +ssubscribe +pubsub|shardnumsub"), "+publish +subscribe +pubsub|numsub");
    let rights = lines(numbers).replace(those, others);
    format!("{rights} {}", also("+asking +cluster|slots +cluster|myid"))
}
