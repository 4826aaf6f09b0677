//! How many connections a store has, how long it keeps them, and how long it keeps rows.

use std::time::Duration;

use dlock_contract::Result;
use dlock_store::{Address, OptionRow};

/// How many connections a store has, how long it keeps them, and how long it keeps rows.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most connections of one runtime.
    pub max_connections: usize,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// After how long an unused connection is closed.
    pub idle_timeout: Duration,
    /// After how long a connection is replaced, in use or not.
    pub max_lifetime: Duration,
    /// How often rows of unused keys are looked for.
    pub sweep_every: Duration,
    /// After how long the row of an unused key is deleted.
    pub sweep_after: Duration,
    /// Whether named locks have the names that foreign clients use.
    pub is_literal: bool,
}

/// The option of a URL for names that foreign clients use.
pub const KEYS: OptionRow = OptionRow::one_of("keys", &["literal"]);

/// The options of a URL for [`Settings`].
pub const OPTIONS: [OptionRow; 6] = [
    OptionRow::new("max_connections", "the most connections of one runtime, 1 to 1000; 8 by default"),
    OptionRow::new("connect_timeout", "how long a connection may take to open, such as 5s, which is the default"),
    OptionRow::new("idle_timeout", "after how long an unused connection is closed, such as 1m, which is the default"),
    OptionRow::new("max_lifetime", "after how long a connection is replaced, such as 30m, which is the default"),
    OptionRow::new("sweep_every", "how often rows of unused keys are looked for, such as 1h, which is the default"),
    OptionRow::new("sweep_after", "after how long an unused key's row is deleted, such as 30d, which is the default"),
];

/// The options of a URL for locks in ShedLock's table.
pub const LAYOUT: [OptionRow; 3] = [
    OptionRow::one_of("layout", &["shedlock"]),
    OptionRow::new(
        "shedlock_table",
        "the name of ShedLock's table as in the database, in letters, digits and underscores, or schema.name; `shedlock` by default",
    ),
    OptionRow::one_of("shedlock_create", &["yes"]),
];

/// The options that only lease rows have.
const OF_ROWS: [&str; 6] =
    ["max_connections", "idle_timeout", "max_lifetime", "layout", "shedlock_table", "shedlock_create"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 8,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            max_lifetime: Duration::from_secs(30 * 60),
            sweep_every: Duration::from_secs(3600),
            sweep_after: Duration::from_secs(30 * 24 * 3600),
            is_literal: false,
        }
    }
}

impl Settings {
    /// Reads the settings of named locks, which have no pool.
    ///
    /// # Errors
    /// For a value that cannot be, and for an option of the pool.
    pub fn of_named(address: &Address) -> Result<Self> {
        match OF_ROWS.iter().find(|name| address.option(name).is_some()) {
            Some(name) => {
                Err(address.wrong(&format!("`{name}` is not allowed with way=named: a named lock lives in a session; leave it out, or take way=lease")))
            }
            None => Self::read_without_table(address),
        }
    }

    /// Reads the settings of row locks, whose names are never those of foreign clients. A table of the user's own has
    /// literal keys.
    ///
    /// # Errors
    /// For an invalid value.
    pub fn of_row(address: &Address) -> Result<Self> {
        let has = |name: &str| address.option(name).is_some();
        if LAYOUT.iter().any(|row| has(row.name)) {
            return Err(address.wrong("`layout` is only allowed with way=lease"));
        }
        if has("keys") {
            return Err(address
                .wrong("`keys` is only allowed with way=named: with way=row, a table of your own has literal keys"));
        }
        Self::read(address)
    }

    /// As the URL says, or the defaults.
    ///
    /// # Errors
    /// For an invalid value.
    pub fn of(address: &Address) -> Result<Self> {
        match address.option("keys") {
            Some(_) => Err(address.wrong("`keys` is only allowed with way=named: a lease row has the key as its name")),
            None => Self::read_without_table(address),
        }
    }

    /// How long a connection may take to open.
    ///
    /// # Errors
    /// For an invalid value.
    pub fn connect_timeout_of(address: &Address) -> Result<Duration> {
        Ok(Self::read(address)?.connect_timeout)
    }

    fn read_without_table(address: &Address) -> Result<Self> {
        match ["table", "column"].into_iter().find(|name| address.option(name).is_some()) {
            Some(name) => Err(address.wrong(&format!("`{name}` is only allowed with way=row"))),
            None => Self::read(address),
        }
    }

    fn read(address: &Address) -> Result<Self> {
        let defaults = Self::default();
        let time = |name: &str, default: Duration| {
            let read =
                address.read(name, |text| humantime::parse_duration(text).ok().filter(|time| !time.is_zero()))?;
            Ok::<_, dlock_contract::Error>(read.unwrap_or(default))
        };
        let count =
            address.read("max_connections", |text| text.parse().ok().filter(|count| (1..=1000).contains(count)))?;
        Ok(Self {
            max_connections: count.unwrap_or(defaults.max_connections),
            connect_timeout: time("connect_timeout", defaults.connect_timeout)?,
            idle_timeout: time("idle_timeout", defaults.idle_timeout)?,
            max_lifetime: time("max_lifetime", defaults.max_lifetime)?,
            sweep_every: time("sweep_every", defaults.sweep_every)?,
            sweep_after: time("sweep_after", defaults.sweep_after)?,
            is_literal: address.option("keys").is_some(),
        })
    }
}
