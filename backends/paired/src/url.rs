//! The URLs of pairs, which name two installed stores.

use std::sync::Arc;

use dlock_contract::{Backend, Error, Result};
use dlock_store::{Address, Clock, OptionRow, UrlBody, UrlForm};
use futures::future::BoxFuture;

use crate::migrating::{Migrating, Numbers};
use crate::paired::{GateDown, Paired};

/// The forms of the URLs that [`open`] takes.
pub const FORMS: [&UrlForm; 2] = [&PAIRED, &MIGRATING];

const PAIRED: UrlForm = UrlForm::new("a paired URL", "paired://?gate=NAME&authority=NAME", &["paired"], UrlBody::Hosts)
    .options(&[
        OptionRow::new("gate", "the name of an installed store"),
        OptionRow::new("authority", "the name of an installed store"),
        OptionRow::one_of("gate_down", &["fail", "authority"]),
    ]);

const MIGRATING: UrlForm =
    UrlForm::new("a migrating URL", "migrating://?old=NAME&new=NAME", &["migrating"], UrlBody::Hosts).options(&[
        OptionRow::new("old", "the name of an installed store"),
        OptionRow::new("new", "the name of an installed store"),
        OptionRow::one_of("numbers", &["old", "new"]),
    ]);

/// The names of the two stores in a URL of one of these forms.
///
/// # Errors
/// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if the URL does not name exactly two stores.
pub fn members(address: &Address) -> Result<[&str; 2]> {
    if !address.hosts().is_empty()
        || !address.path().is_empty()
        || address.user().is_some()
        || address.password().is_some()
    {
        return Err(address.wrong("it must name two installed stores, and no host, user or path"));
    }
    let [first, second] = if address.scheme() == "paired" { ["gate", "authority"] } else { ["old", "new"] };
    let named = |option: &'static str| {
        let missing = || address.wrong(&format!("the parameter `{option}` is missing"));
        address.option(option).ok_or_else(missing)
    };
    let members = [named(first)?, named(second)?];
    if members[0] == members[1] {
        return Err(Error::config(
            second,
            format!("`{first}` and `{second}` must be two stores, but they are the same one"),
        ));
    }
    Ok(members)
}

/// Makes the store of a URL of one of these forms, of the two stores that it [names](members), in their order. It does not
/// close them. They are tried with a lock, to see that they are not one store.
///
/// # Errors
/// As [`members`], [`PairedBuilder::build`](crate::PairedBuilder::build) and
/// [`MigratingBuilder::build`](crate::MigratingBuilder::build);
/// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if both are one store.
pub fn open<'a>(
    address: &'a Address,
    clock: &'a Clock,
    [first, second]: [Arc<dyn Backend>; 2],
) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        if address.scheme() == "paired" {
            let gate_down = match address.option("gate_down") {
                Some("authority") => GateDown::Authority,
                _ => GateDown::Fail,
            };
            let pair = Paired::builder(first, second).gate_down(gate_down).clock(clock).keep_members_open().build()?;
            pair.check_two_stores().await?;
            return Ok(Arc::new(pair) as Arc<dyn Backend>);
        }
        let numbers = if address.option("numbers") == Some("new") { Numbers::New } else { Numbers::Old };
        let both = Migrating::builder(first, second).numbers(numbers).clock(clock).keep_members_open().build()?;
        both.check_two_stores().await?;
        Ok(Arc::new(both) as Arc<dyn Backend>)
    })
}
