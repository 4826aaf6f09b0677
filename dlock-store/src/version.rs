//! The oldest server that a store runs on.

use dlock_contract::{Error, ErrorKind, Result};

/// Refuses a server that is older than `oldest`, such as `8.0`. A version that cannot be read is not judged.
///
/// An older server may take the requests of a lock and refuse those of a sweep, so it would look sound for a while.
///
/// ```
/// assert!(dlock_store::refuse_older("MySQL", "8.0.36-28.1", "8.0").is_ok());
/// let error = dlock_store::refuse_older("MySQL", "5.7.44-log", "8.0").unwrap_err();
/// assert_eq!(error.message(), "this server is MySQL 5.7, and locks need MySQL 8.0 or later");
/// ```
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an older server.
pub fn refuse_older(product: &str, version: &str, oldest: &str) -> Result<()> {
    let (Some(found), Some(least)) = (numbers(version), numbers(oldest)) else { return Ok(()) };
    if found >= least {
        return Ok(());
    }
    let need = format!("{product} {oldest} or later");
    let text = format!("this server is {product} {}.{}, and locks need {need}", found.0, found.1);
    Err(Error::new(ErrorKind::Unsupported { need }, text))
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let is_refused = |version, oldest| refuse_older("MySQL", version, oldest).is_err();
        for version in ["5.7.44-log", "5.7.mysql_aurora.2.11.4", "7"] {
            assert!(is_refused(version, "8.0"), "{version}");
        }
        for version in ["8.0.36-28.1", "8.0.mysql_aurora.3.04.0", "9.7.0", "10.1", "unknown", ""] {
            assert!(!is_refused(version, "8.0"), "{version}");
        }
        assert!(is_refused("10.5.29-MariaDB", "10.6") && !is_refused("10.11.14-MariaDB-0+deb12u2", "10.6"));
        assert!(
            is_refused("11.22", "12") && !is_refused("12.22 (Debian 12.22-1)", "12") && !is_refused("18beta1", "12")
        );
    }
}
