//! The errors of a first contact that fails. Each names the file, what is wrong and what to do.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use std::fs;

use dlock::Registry;
use dlock_testkit::first_contact_table;
use sqlx::{Connection, Executor, SqliteConnection};

#[tokio::test]
async fn each_fault_of_a_first_contact_has_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("text.db"), "no database ".repeat(500)).unwrap();
    fs::write(at("read-only.db"), "").unwrap();
    let mut permissions = fs::metadata(at("read-only.db")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(at("read-only.db"), permissions).unwrap();
    let url = |name: &str| format!("sqlite://{}?mode=rwc", at(name));
    let mut other = SqliteConnection::connect(&url("other.db")).await.unwrap();
    other.execute("CREATE TABLE dlock_locks (id INTEGER)").await.unwrap();
    let mut newer = SqliteConnection::connect(&url("newer.db")).await.unwrap();
    let registry = Registry::new();
    registry.connect("made", &format!("sqlite://{}", at("newer.db"))).await.unwrap();
    newer.execute("UPDATE dlock_schema SET version = 9999").await.unwrap();
    let mut busy = SqliteConnection::connect(&url("busy.db")).await.unwrap();
    busy.execute("BEGIN EXCLUSIVE").await.unwrap();
    let mut rows = Vec::new();
    for (fault, name) in [
        ("no such folder", "nowhere/locks.db"),
        ("a folder", "folder"),
        ("not a database", "text.db"),
        ("read-only", "read-only.db"),
        ("tables of another program", "other.db"),
        ("tables of another version", "newer.db"),
        ("a file that another process keeps locked", "busy.db"),
        ("wrong topology: a file that is not on a disk", "/proc/self/locks.db"),
    ] {
        let path = if name.starts_with('/') { name.to_owned() } else { at(name) };
        let error = Registry::new().connect("file", &format!("sqlite://{path}")).await.expect_err(fault);
        assert!(error.message().contains(&path), "{}", error.message());
        rows.push((fault, error.message().replace(&path, "PATH")));
    }
    first_contact_table("sqlite", &rows);
}
