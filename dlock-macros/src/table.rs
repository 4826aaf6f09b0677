//! The options of each attribute: one row each, and a field in [`Args`] for its value. `reader` fills the fields, and
//! `docs/options.md` is written from these tables.

use std::time::Duration;

use dlock_values::Pauses;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Expr, Ident, LitStr, Path};

use crate::key_values::{self, Key};
use crate::tokens::{
    backoff, cohort, duration, fixed_count, fixed_time, max_waiters, mode, on_lost, renew, retry, some, wait,
};
use crate::values::{self, Cohort, Given, Mode, OnBusy, OnLost, Renew, Retry, Wait};
use crate::written::{Location, Parsed, Takes, Written, parsed};

/// `#[distributed_lock]`.
pub(crate) const LOCK: AttributeSpec = AttributeSpec {
    attribute: "distributed_lock",
    table: LOCK_TABLE,
    required: &[(&["key", "keys"], r#"`key` is missing: the lock needs a name, such as `key = "stock:<id>"`"#)],
    complete: |_| {},
    too_early: LOCK_TOO_EARLY,
};

const LOCK_TOO_EARLY: &str = "the lock would end before the work runs";

/// `#[scheduled_lock]`: the same lock, with options for scheduled tasks.
pub(crate) const SCHEDULED: AttributeSpec = AttributeSpec {
    attribute: "scheduled_lock",
    table: SCHEDULED_TABLE,
    required: &[
        (&["name"], r#"`name` is missing: the task needs one, such as `name = "nightly-report"`"#),
        (&["at_most"], r#"`at_most` is missing: how long may one run take? Such as `at_most = "30m"`"#),
    ],
    complete: |args| {
        args.renew = Some(Parsed::implied("renew", Renew::Off));
        args.wait = Some(Parsed::implied("wait", Given::Literal(Wait::None)));
        args.record = true;
        args.on_busy.get_or_insert_with(|| Parsed::implied("on_busy", OnBusy::Skip));
    },
    too_early: LOCK_TOO_EARLY,
};

/// `#[optimistic]`: takes no lock; runs the body again after a conflict.
pub(crate) const OPTIMISTIC: AttributeSpec = AttributeSpec {
    attribute: "optimistic",
    table: OPTIMISTIC_TABLE,
    required: &[],
    complete: |_| {},
    too_early: "the attempts would be over before the work runs",
};

/// The dialect of an attribute that locks.
pub(crate) fn lock_named(name: &Ident) -> Option<&'static AttributeSpec> {
    [&LOCK, &SCHEDULED].into_iter().find(|spec| name == spec.attribute)
}

/// An attribute: its name and what can be written in it.
pub(crate) struct AttributeSpec {
    pub(crate) attribute: &'static str,
    pub(crate) table: &'static [OptionSpec],
    /// One option of each group must be there. Otherwise the text is the mistake.
    pub(crate) required: &'static [(&'static [&'static str], &'static str)],
    /// Fills in the options that the attribute implies.
    pub(crate) complete: fn(&mut Args),
    /// The reason why a function must not only make the work and return it.
    pub(crate) too_early: &'static str,
}

/// One option: how it is written, what it means, and how its value is read.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page, nothing else reads it"))]
pub(crate) struct OptionSpec {
    pub(crate) name: &'static str,
    pub(crate) forms: &'static str,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    /// Whether it may be written without a value.
    pub(crate) flag: bool,
    /// The kinds of values that it takes, beside literals and words.
    pub(crate) takes: Takes,
    /// The value of the option's field in the static of the call; `None` if the option was not given, or has no such field.
    pub(crate) field: fn(&Args, &TokenStream) -> Option<TokenStream>,
    pub(crate) read: fn(&mut Args, &Written) -> Result<(), String>,
    /// The expression that the compiler works out, if the value is one.
    pub(crate) constant: fn(&Args) -> Option<(&Location, &Expr)>,
}

/// The options that were written in an attribute.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<Parsed<Key>>,
    pub(crate) keys: Option<Parsed<Vec<LitStr>>>,
    pub(crate) ttl: Option<Parsed<Given<Duration>>>,
    pub(crate) wait: Option<Parsed<Given<Wait>>>,
    pub(crate) attempts: Option<Parsed<Given<u32>>>,
    pub(crate) backoff: Option<Parsed<Pauses>>,
    pub(crate) max_waiters: Option<Parsed<Given<u32>>>,
    pub(crate) backend: Option<Parsed<Given<String>>>,
    pub(crate) mode: Option<Parsed<Mode>>,
    pub(crate) fair: Option<Parsed<bool>>,
    pub(crate) cohort: Option<Parsed<Option<Cohort>>>,
    pub(crate) reentrant: Option<Parsed<bool>>,
    pub(crate) renew: Option<Parsed<Renew>>,
    pub(crate) max_hold: Option<Parsed<Given<Duration>>>,
    pub(crate) timeout: Option<Parsed<Given<Duration>>>,
    pub(crate) min_hold: Option<Parsed<Given<Duration>>>,
    pub(crate) once_per: Option<Parsed<Given<Duration>>>,
    pub(crate) offset: Option<Parsed<Given<Duration>>>,
    pub(crate) rerun: Option<Parsed<()>>,
    pub(crate) record: bool,
    pub(crate) on_busy: Option<Parsed<OnBusy>>,
    pub(crate) on_lost: Option<Parsed<OnLost>>,
    pub(crate) on_outage: Option<Parsed<bool>>,
    pub(crate) retry: Option<Parsed<Retry>>,
    pub(crate) guard: Option<Parsed<Ident>>,
    pub(crate) fence: Option<Parsed<Ident>>,
    pub(crate) sensitive: Option<Parsed<bool>>,
    pub(crate) name: Option<Parsed<String>>,
    pub(crate) krate: Option<Parsed<Path>>,
    pub(crate) retries: Option<Parsed<Given<u32>>>,
    /// The items of the program that values of options name, also in values that could not be parsed.
    pub(crate) mentioned: Vec<Expr>,
    /// The names that the body uses, by option, also where the value could not be read.
    pub(crate) in_body: Vec<(&'static str, Ident)>,
}

impl Args {
    /// The keys as they were written, to be compared.
    pub(crate) fn key_texts(&self) -> Option<Vec<String>> {
        match (&self.key, &self.keys) {
            (Some(key), _) => match key.value.as_ref()? {
                Key::Template(template) => Some(vec![template.value()]),
                Key::Computed(key) => Some(vec![key.to_token_stream().to_string()]),
            },
            (None, keys) => Some(keys.as_ref()?.value.as_ref()?.iter().map(LitStr::value).collect()),
        }
    }

    /// The templates of the keys, as far as they could be read.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &LitStr> {
        let one = self.key.iter().filter_map(|key| match key.value.as_ref()? {
            Key::Template(template) => Some(template),
            Key::Computed(_) => None,
        });
        one.chain(self.keys.iter().filter_map(|keys| keys.value.as_ref()).flatten())
    }

    /// The expressions that each call evaluates.
    pub(crate) fn per_call(&self) -> impl Iterator<Item = (&Location, &Expr)> {
        fn expr<T>(parsed: &Option<Parsed<Given<T>>>) -> Option<(&Location, &Expr)> {
            let parsed = parsed.as_ref()?;
            parsed.value.as_ref()?.expr().map(|value| (&parsed.location, value))
        }
        let computed = self.key.as_ref().and_then(|key| match key.value.as_ref()? {
            Key::Computed(value) => Some((&key.location, &**value)),
            Key::Template(_) => None,
        });
        [computed, expr(&self.ttl), expr(&self.wait), expr(&self.backend)].into_iter().flatten()
    }

    /// The guard's or the token's name in the body, as far as it can be told.
    pub(crate) fn in_body<'a>(&'a self, parsed: Option<&'a Parsed<Ident>>) -> Option<(&'a Location, &'a Ident)> {
        let location = &parsed?.location;
        let (_, name) = self.in_body.iter().find(|(option, _)| *option == location.word)?;
        Some((location, name))
    }

    pub(crate) fn key_location(&self) -> Option<&Location> {
        self.key.as_ref().map(|key| &key.location).or(self.keys.as_ref().map(|keys| &keys.location))
    }
}

/// A row that only reads a value into its slot. The arguments after the slot: how the value is read, and what it may be
/// besides literals and words. The last one, if the option has a field in the static of the call, is the field's value.
macro_rules! row {
    ($name:literal, $forms:literal, $default:literal, $doc:literal, $slot:ident, $read:path, $takes:ident $(, $field:expr)?) => {
        OptionSpec {
            name: $name,
            forms: $forms,
            default: $default,
            doc: $doc,
            flag: false,
            takes: Takes::$takes,
            field: row!(@field $($field)?),
            read: |args: &mut Args, written: &Written| written.set(&mut args.$slot, $read),
            constant: row!(@constant $takes $slot),
        }
    };
    (@constant Constants $slot:ident) => { |args| constant(&args.$slot, |value| value.expr()) };
    (@constant $takes:ident $slot:ident) => { |_| None };
    (@field) => { |_, _| None };
    (@field $field:expr) => { $field };
}

#[rustfmt::skip]
const LOCK_TABLE: &[OptionSpec] = &[
    row!("key", r#"`"stock:<id>"`, or an expression that gives a `Key`"#, "required, or `keys`",
        "The name of the lock; `<…>` inserts the value of a parameter, of a field of a parameter, or of a const generic. `<<` is a plain `<`.",
        key, key_values::key, Expressions),
    OptionSpec {
        name: "keys",
        forms: r#"`["account:<from>", "account:<to>"]`, `"order:<ids..>"`"#,
        default: "–",
        doc: "Several locks: the call takes all of them or none. All callers take them in the same order. `<ids..>` stands for each value of a list. One call takes at most 10 000 locks.",
        flag: false,
        takes: Takes::Words,
        field: |_, _| None,
        read: |args, written| written.set_what_can_be_read(&mut args.keys, key_values::keys),
        constant: |_| None,
    },
    row!("ttl", r#"`"30s"`, `"1m30s"`, or an expression of type `Duration`"#, "the registry's (30 s)",
        "Time-to-live: if the holder's process dies, the lock is free after this time. On Redis, the lease of a lock that was handed over to a waiter is one second until its first renewal, 100 ms later.",
        ttl, values::time_or_expr, Expressions,
        |args, _| literal(&args.ttl).map(|ttl| some(&duration(*ttl)))),
    row!("wait", r#"`"5s"`, `"none"`, `"forever"`, or an expression: a `Duration` or a `Wait`"#, "the registry's (10 s)",
        "How long the call waits while another owner holds the lock. If an earlier call of this process has its turn and is not polled, such as another branch of a `select!`, the turn goes on after 9 s at most (14 s with `fair`). An error before that names the earlier call.",
        wait, values::wait, Expressions,
        |args, rt| literal(&args.wait).map(|value| some(&wait(value, rt)))),
    row!("attempts", "`5`, or a `const` of type `u32`", "as many as the wait allows",
        "How often the call asks the store, at most, while another owner holds the lock.",
        attempts, values::count, Constants,
        |args, rt| parsed(&args.attempts).map(|value| some(&fixed_count(value, rt)))),
    row!("backoff", r#"`"100ms..5s"`"#, "the store's",
        "The pause between two polls, for a store that cannot notify waiters. The pause is random. Its upper bound starts at the first value, of 1 ms or more, and doubles up to the second.",
        backoff, values::backoff, Words,
        |args, rt| parsed(&args.backoff).map(|value| some(&backoff(*value, rt)))),
    row!("max_waiters", "`100`, or a `const` of type `u32`", "the registry's (10 000)",
        "How many callers of this process may wait for one key. The caller that asks the store counts too, as soon as it knows that the lock is taken. One more caller fails at once.",
        max_waiters, values::max_waiters, Constants,
        |args, rt| parsed(&args.max_waiters).map(|value| some(&max_waiters(value, rt)))),
    row!("backend", r#"`"redis"`, or an expression that gives a name"#, "the registry's default, or the only store that is installed",
        "The name under which the store was installed.",
        backend, values::backend, Expressions),
    OptionSpec { constant: |args| constant(&args.mode, Mode::expr), ..row!("mode",
        "`exclusive`, `read`, `write`, `permits(3)`, `permits(N)` of a `const N: u32`", "`exclusive`",
        "Lock mode: one holder, many readers or one writer, or up to N holders at a time.",
        mode, values::mode, Words,
        |args, rt| parsed(&args.mode).map(|value| mode(value, rt))) },
    OptionSpec { flag: true, ..row!("fair", "`fair`, `true`, `false`", "`false`",
        "Waiters of all processes get the lock in the order in which they came. Refused if the store does not support it. On Redis, a caller without `fair` may still overtake them when a `min_hold`, or the lease of a dead holder, ends.",
        fair, values::flag, Words,
        |args, _| parsed(&args.fair).map(ToTokens::to_token_stream)) },
    row!("cohort", r#"`true`, `false`, `64`, `"64/3s"`"#, "`false`",
        "Callers of one process pass the lock on among themselves while other processes wait. The values limit how many times, and for how long. In their process each caller has a hold id of its own, and `break_lock` with it ends no later caller's hold. Other processes see the one id of the hold in the store: `break_lock` with it ends the hold, whichever caller has it.",
        cohort, values::cohort, Words,
        |args, rt| parsed(&args.cohort)?.as_ref().map(|value| some(&cohort(value, rt)))),
    OptionSpec { flag: true, ..row!("reentrant", "`reentrant`, `true`, `false`", "`false`",
        "A nested call for the same lock joins the hold of the enclosing call instead of failing. Nested calls that run at the same time, as in `try_join_all`, do not exclude each other. A nested call with `once_per` or `min_hold` cannot join, and fails. The hold stays that of the enclosing call: a `ttl`, `renew`, `max_hold`, `mode` or `fair` of the nested call has no effect. If it differs from the hold's, the event `OptionsIgnored` names it (log level `debug`).",
        reentrant, values::flag, Words,
        |args, _| parsed(&args.reentrant).map(ToTokens::to_token_stream)) },
    row!("renew", r#"`true`, `false`, `"5s"`, or a `const` of type `Duration`"#, "`true`: a third of the ttl",
        "Whether dlock renews the lock while the function runs, and at which interval. The interval is at least 1 ms and at most two thirds of the ttl. So if a renewal is late or fails, there is time for another one.",
        renew, values::renew, Constants,
        |args, rt| parsed(&args.renew).map(|value| some(&renew(value, rt)))),
    row!("max_hold", r#"`"10m"`, or a `const` of type `Duration`"#, "the registry's (1 h)",
        "Renewal stops after this time, and the lock is lost. Another owner gets it when the body has ended, and at the end of the lease at the latest.",
        max_hold, values::fixed_time, Constants,
        |args, rt| parsed(&args.max_hold).map(|value| some(&fixed_time(value, rt)))),
    row!("timeout", r#"`"20s"`, or a `const` of type `Duration`"#, "none",
        "How long the body may take. After this time dlock cancels the body and releases the lock. Async functions only.",
        timeout, values::fixed_time, Constants,
        |args, rt| parsed(&args.timeout).map(|value| some(&fixed_time(value, rt)))),
    row!("min_hold", r#"`"10s"`, or a `const` of type `Duration`"#, "none",
        "If the release is earlier than this time after the grant, the lock stays taken until then. Refused if the store does not support it. On Redis there is no hand-over when this time ends: a caller without `fair` that asks just then may overtake the waiters. On etcd its end is rounded up to whole seconds.",
        min_hold, values::fixed_time, Constants,
        |args, rt| parsed(&args.min_hold).map(|value| some(&fixed_time(value, rt)))),
    row!("once_per", r#"`"1m"`, or a `const` of type `Duration`"#, "none",
        "At most one start in each period, in all processes together. Refused if the store cannot tell its time.",
        once_per, values::fixed_time, Constants,
        |args, rt| once_per(args, rt).map(|value| some(&value))),
    row!("offset", r#"`"12h"`, or a `const` of type `Duration`"#, "none: midnight UTC for a day",
        "With `once_per`: shifts the boundaries of the periods, which are counted from 1970 in UTC. A boundary must be near the time at which the task starts. For a task that starts daily at noon, use `\"12h\"`. A start counts for the nearest boundary. So a start that is more than half a period late counts for the next boundary, and a start that is as early counts for the one before.",
        offset, values::fixed_time, Constants),
    row!("rerun", "`on_crash`", "never",
        "With `once_per`: if the process of a run died, another caller may start the run again in its period, as soon as the lease has ended. This is a caller that `wait`s for it or asks then. If a run was cancelled, or its guard was dropped, another node may start it at once. A run that panicked, gave an error or ran out of time has failed, and is not started again. If the store did not learn of a run's end before the lease ended, the run counts as one whose process died, although its caller got `Ok`.",
        rerun, values::rerun, Words),
    row!("on_busy", "`error`, `skip`, `call(path)`", "`error`",
        "If another owner holds the lock, the call fails, returns without running the body, or calls another function with the same arguments.",
        on_busy, values::on_busy, Words),
    row!("on_lost", "`cancel`, `continue`", "`cancel`",
        "If the lock is lost while the body runs, the body is dropped or goes on. A function that is not async always goes on.",
        on_lost, values::on_lost, Words,
        |args, rt| parsed(&args.on_lost).map(|value| on_lost(*value, rt))),
    row!("on_outage", "`error`, `skip`", "`error`",
        "If the store does not answer, the call fails or returns without running the body.",
        on_outage, values::on_outage, Words),
    row!("retry", r#"`false`, `5`, `"5, 100ms..2s"`"#, "the registry's (3, 100 ms to 5 s)",
        "How often the call asks the store again after an error that may pass, and the pauses before. With a count alone, the pauses are the registry's.",
        retry, values::retry, Words,
        |args, rt| parsed(&args.retry).map(|value| some(&retry(value, rt)))),
    row!("guard", "`held`", "–",
        "The name of a variable in the body: the `Held` of the lock, or with `keys` a `Vec` of them, one for each key, in the order in which the keys are written.",
        guard, values::guard, Words),
    row!("fence", "`token`", "–",
        "The name of a variable in the body: the fencing token. The call fails if the store has none.",
        fence, values::fence, Words,
        |args, _| parsed(&args.fence).map(|_| quote!(true))),
    OptionSpec { flag: true, ..row!("sensitive", "`sensitive`, `true`, `false`", "`false`",
        "The log and errors show a hash in the place of the key and its values. The key stays readable in the store, in listings and in `dlock::held()`. The hash is `sha256:` and the first 16 digits of `printf %s 'stock:<42>' | sha256sum`, so it finds the lines of a key that you know. It does not hide a key from a reader who can guess it.",
        sensitive, values::flag, Words,
        |args, _| parsed(&args.sensitive).map(ToTokens::to_token_stream)) },
    row!("name", r#"`"deduct_stock"`"#, "the function's path",
        "The lock's name in metrics, spans and the catalogue.",
        name, values::name, Words),
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

#[rustfmt::skip]
const SCHEDULED_TABLE: &[OptionSpec] = &[
    row!("name", r#"`"nightly-report"`, `"report:<region>"`"#, "required",
        "The task's name, which is the key of its lock.",
        key, key_values::template, Words),
    row!("at_most", r#"`"30m"`, or an expression of type `Duration`"#, "required",
        "How long a run may take. The lock is not renewed: if the node dies, the lock is free after this time. A body that takes longer is cancelled; that of a function that is not async goes on, without the lock. If you need renewal, use `distributed_lock` with `once_per`.",
        ttl, values::time_or_expr, Expressions),
    row!("at_least", r#"`"5m"`, or a `const` of type `Duration`"#, "none",
        "How long the lock stays taken even if the run is over. It must be longer than the clocks of the nodes differ. The time counts from the start of the run, so after a late run the next one is late too.",
        min_hold, values::fixed_time, Constants),
    row!("backend", r#"`"redis"`, or an expression that gives a name"#, "the registry's default, or the only store that is installed",
        "The name under which the store was installed.",
        backend, values::backend, Expressions),
    row!("once_per", r#"`"1m"`, or a `const` of type `Duration`"#, "none",
        "At most one start in each period, in all processes together. The clocks of the nodes do not matter. Refused if the store cannot tell its time.",
        once_per, values::fixed_time, Constants),
    row!("offset", r#"`"12h"`, or a `const` of type `Duration`"#, "none: midnight UTC for a day",
        "With `once_per`: shifts the boundaries of the periods, which are counted from 1970 in UTC. A boundary must be near the time at which the task starts. For a task that starts daily at noon, use `\"12h\"`. A start counts for the nearest boundary. So a start that is more than half a period late counts for the next boundary, and a start that is as early counts for the one before.",
        offset, values::fixed_time, Constants),
    row!("rerun", "`on_crash`", "never",
        "With `once_per`: if the process of a run died, the next node that asks may start the run again in its period, as soon as the lease has ended. No node waits for it. If a run was cancelled, or its guard was dropped, another node may start it at once. A run that panicked, gave an error or ran out of time has failed, and is not started again. If the store did not learn of a run's end before the lease ended, the run counts as one whose process died, although its caller got `Ok`.",
        rerun, values::rerun, Words),
    row!("on_busy", "`skip`, `error`, `call(path)`", "`skip`",
        "If another node runs the task, the call returns without running the body, fails, or calls another function with the same arguments.",
        on_busy, values::on_busy, Words),
    row!("on_outage", "`error`, `skip`", "`error`",
        "If the store does not answer, the call fails, or returns without running the body.",
        on_outage, values::on_outage, Words),
    OptionSpec { flag: true, ..row!("sensitive", "`sensitive`, `true`, `false`", "`false`",
        "The log and errors show a hash in the place of the key and its values, as for `distributed_lock`.",
        sensitive, values::flag, Words) },
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

#[rustfmt::skip]
const OPTIMISTIC_TABLE: &[OptionSpec] = &[
    row!("retries", "`3`, or a `const` of type `u32`", "`3`",
        "How often, at most, the body runs again after a conflict.",
        retries, values::retries, Constants),
    row!("backoff", r#"`"50ms"`, `"50ms..2s"`"#, "`\"10ms..1s\"`",
        "The pause before the body runs again. The pause is random. Its upper bound starts at the first value and doubles up to the second (5 s by default).",
        backoff, values::pause, Words),
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

/// A value that is known at compile time. A value of a call is not in the static.
fn literal<T>(slot: &Option<Parsed<Given<T>>>) -> Option<&T> {
    parsed(slot)?.literal()
}

/// The expression in an option's value, and where the option is written.
fn constant<T>(slot: &Option<Parsed<T>>, expr: fn(&T) -> Option<&Expr>) -> Option<(&Location, &Expr)> {
    let slot = slot.as_ref()?;
    Some((&slot.location, expr(slot.value.as_ref()?)?))
}

/// The period, with the options that belong to it.
fn once_per(args: &Args, rt: &TokenStream) -> Option<TokenStream> {
    let period = fixed_time(parsed(&args.once_per)?, rt);
    let offset = parsed(&args.offset).map_or_else(|| duration(Duration::ZERO), |offset| fixed_time(offset, rt));
    let rerun = args.rerun.is_some();
    Some(quote!(#rt::OncePer::new(#period).offset(#offset).rerun(#rerun)))
}

/// The reference page: each attribute, and the text above its table.
#[cfg(test)]
pub(crate) const REFERENCE: &[(&AttributeSpec, &str)] = &[
    (
        &LOCK,
        "Runs a function only while a distributed lock is held.\n\n\
         The function must return the result of its work, not a future that still has to do the work. A future inside of its `Result`, `Option` or `Outcome` is a compile error, also behind an alias. \
         **dlock cannot check a type parameter:** if `T` of a `Result<T, E>` is a future, the function compiles, and that future runs after the lock is released. The same is true for a future in a type of your own. Use such a type to return a handle, such as a `JoinHandle`, on purpose.",
    ),
    (&SCHEDULED, "For tasks that several nodes start at the same time: one node runs the task, the others skip it."),
    (&OPTIMISTIC, "Takes no lock. Runs the body again if it conflicts with another writer."),
];
