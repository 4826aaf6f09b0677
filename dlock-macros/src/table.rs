//! The options of each attribute: one row each. `docs/options.md` is written from these tables.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::Ident;

use crate::args::{Args, Dialect, Row, Said, Takes, Written, said};
use crate::key_values;
use crate::tokens::{
    backoff, cohort, duration, fixed_count, fixed_time, max_waiters, mode, on_lost, renew, retry, some, wait,
};
use crate::values::{self, Given, OnBusy, Renew, Wait};

/// `#[distributed_lock]`.
pub(crate) const LOCK: Dialect = Dialect {
    attribute: "distributed_lock",
    table: LOCK_TABLE,
    required: &[(&["key", "keys"], r#"`key` is missing: the lock needs a name, such as `key = "stock:<id>"`"#)],
    complete: |_| {},
    too_early: LOCK_TOO_EARLY,
};

const LOCK_TOO_EARLY: &str = "the lock would end before the work runs";

/// `#[scheduled_lock]`: the same machinery for those who think in schedules.
pub(crate) const SCHEDULED: Dialect = Dialect {
    attribute: "scheduled_lock",
    table: SCHEDULED_TABLE,
    required: &[
        (&["name"], r#"`name` is missing: the task needs one, such as `name = "nightly-report"`"#),
        (&["at_most"], r#"`at_most` is missing: how long may one run take? Such as `at_most = "30m"`"#),
    ],
    complete: |args| {
        args.renew = Some(Said::implied("renew", Renew::Off));
        args.wait = Some(Said::implied("wait", Given::Literal(Wait::None)));
        args.record = true;
        args.on_busy.get_or_insert_with(|| Said::implied("on_busy", OnBusy::Skip));
    },
    too_early: LOCK_TOO_EARLY,
};

/// `#[optimistic]`: no lock at all, but the body again.
pub(crate) const OPTIMISTIC: Dialect = Dialect {
    attribute: "optimistic",
    table: OPTIMISTIC_TABLE,
    required: &[],
    complete: |_| {},
    too_early: "the attempts would be over before the work runs",
};

/// The dialect of an attribute that locks.
pub(crate) fn lock_named(name: &Ident) -> Option<&'static Dialect> {
    [&LOCK, &SCHEDULED].into_iter().find(|dialect| name == dialect.attribute)
}

/// Short for a row that only reads a value into its slot. After the slot: how the value is read, and what else than
/// literals and words it may be; then, where the option has a field in the static of the call, the field's value.
macro_rules! row {
    ($name:literal, $forms:literal, $default:literal, $doc:literal, $slot:ident, $read:path, $takes:ident $(, $field:expr)?) => {
        Row {
            name: $name,
            forms: $forms,
            default: $default,
            doc: $doc,
            flag: false,
            takes: Takes::$takes,
            field: row!(@field $($field)?),
            read: |args: &mut Args, written: &Written| written.set(&mut args.$slot, $read),
        }
    };
    (@field) => { |_, _| None };
    (@field $field:expr) => { $field };
}

#[rustfmt::skip]
const LOCK_TABLE: &[Row] = &[
    row!("key", r#"`"stock:<id>"`, or an expression that gives a `Key`"#, "required, or `keys`",
        "The name of the lock; `<…>` puts in a parameter, a field of one, or a const generic; `<<` is a plain `<`.",
        key, key_values::key, Expressions),
    Row {
        name: "keys",
        forms: r#"`["account:<from>", "account:<to>"]`, `"order:<ids..>"`"#,
        default: "–",
        doc: "Several locks, all or none, in an order that is the same for every caller; `<ids..>` stands for each value of a list. 10 000 at most in one call.",
        flag: false,
        takes: Takes::Words,
        field: |_, _| None,
        read: |args, written| written.set_what_can_be_read(&mut args.keys, key_values::keys),
    },
    row!("ttl", r#"`"30s"`, `"1m30s"`, or an expression of type `Duration`"#, "the registry's (30 s)",
        "How long the lock outlives a process that died with it. On Redis a lock that is handed over to a waiter lives on one second until its first renewal, 100 ms later.",
        ttl, values::time_or_expr, Expressions,
        |args, _| literal(&args.ttl).map(|ttl| some(&duration(*ttl)))),
    row!("wait", r#"`"5s"`, `"none"`, `"forever"`, or an expression: a `Duration` or a `Wait`"#, "the registry's (10 s)",
        "How long to wait while somebody else holds the lock.",
        wait, values::wait, Expressions,
        |args, rt| literal(&args.wait).map(|it| some(&wait(it, rt)))),
    row!("attempts", "`5`, or a `const` of type `u32`", "as many as the wait allows",
        "How often the store is asked at most while somebody else holds the lock.",
        attempts, values::count, Constants,
        |args, rt| said(&args.attempts).map(|it| some(&fixed_count(it, rt)))),
    row!("backoff", r#"`"100ms..5s"`"#, "the store's",
        "The pause before a store that can only be polled is asked again: random, up to a bound that doubles from the first to the second.",
        backoff, values::backoff, Words,
        |args, rt| said(&args.backoff).map(|it| some(&backoff(it, rt)))),
    row!("max_waiters", "`100`, or a `const` of type `u32`", "the registry's (10 000)",
        "How many callers of this process may wait for one key; the one that asks the store counts too, as soon as it knows that others hold the lock. One more fails at once.",
        max_waiters, values::max_waiters, Constants,
        |args, rt| said(&args.max_waiters).map(|it| some(&max_waiters(it, rt)))),
    row!("backend", r#"`"redis"`, or an expression that gives a name"#, "the registry's default, or the only store that is installed",
        "The name under which the store was installed.",
        backend, values::backend, Expressions),
    row!("mode", "`exclusive`, `read`, `write`, `permits(3)`, `permits(N)` of a `const N: u32`", "`exclusive`",
        "Who may hold the lock beside whom: nobody, other readers, or so many at a time.",
        mode, values::mode, Words,
        |args, rt| said(&args.mode).map(|it| mode(it, rt))),
    Row { flag: true, ..row!("fair", "`fair`, `true`, `false`", "`false`",
        "Callers of all processes are served in the order in which they came. Refused where the store cannot do it. On Redis a caller without it may still come first when a `min_hold`, or the lease of a dead holder, ends.",
        fair, values::flag, Words,
        |args, _| said(&args.fair).map(ToTokens::to_token_stream)) },
    row!("cohort", r#"`true`, `false`, `64`, `"64/3s"`"#, "`false`",
        "Callers of one process pass the lock on among themselves while others wait: so many times, and for so long, at most.",
        cohort, values::cohort, Words,
        |args, rt| said(&args.cohort)?.as_ref().map(|it| some(&cohort(it, rt)))),
    Row { flag: true, ..row!("reentrant", "`reentrant`, `true`, `false`", "`false`",
        "A nested call for the same lock joins the hold of the enclosing one instead of failing. One with `once_per` or `min_hold` cannot join, and fails.",
        reentrant, values::flag, Words,
        |args, _| said(&args.reentrant).map(ToTokens::to_token_stream)) },
    row!("renew", r#"`true`, `false`, `"5s"`, or a `const` of type `Duration`"#, "`true`: a third of the ttl",
        "Whether the lock is renewed while the function runs, and how often: after two thirds of the ttl at the latest, so that a renewal that comes late or fails leaves time for another one.",
        renew, values::renew, Constants,
        |args, rt| said(&args.renew).map(|it| some(&renew(it, rt)))),
    row!("max_hold", r#"`"10m"`, or a `const` of type `Duration`"#, "the registry's (1 h)",
        "Renewal stops there, and the lock is lost.",
        max_hold, values::fixed_time, Constants,
        |args, rt| said(&args.max_hold).map(|it| some(&fixed_time(it, rt)))),
    row!("timeout", r#"`"20s"`, or a `const` of type `Duration`"#, "none",
        "How long the body may take; then it is cancelled and the lock released. Async functions only.",
        timeout, values::fixed_time, Constants,
        |args, rt| said(&args.timeout).map(|it| some(&fixed_time(it, rt)))),
    row!("min_hold", r#"`"10s"`, or a `const` of type `Duration`"#, "none",
        "An early release keeps the key taken until so long after the grant; refused where the store cannot do it. On Redis nobody is handed the key when this time ends: a caller without `fair` that asks just then may overtake those who wait.",
        min_hold, values::fixed_time, Constants,
        |args, rt| said(&args.min_hold).map(|it| some(&fixed_time(it, rt)))),
    row!("once_per", r#"`"1m"`, or a `const` of type `Duration`"#, "none",
        "At most one start in each period in the whole cluster; refused where the store cannot tell its time.",
        once_per, values::fixed_time, Constants,
        |args, rt| once_per(args, rt).map(|it| some(&it))),
    row!("offset", r#"`"12h"`, or a `const` of type `Duration`"#, "none: midnight UTC for a day",
        "With `once_per`: by how much the periods' boundaries come after those counted from 1970 in UTC. A boundary must be near the time at which the task fires, as `\"12h\"` is for one that is due daily at noon: a start counts for the nearest boundary, so one that comes more than half a period late counts for the next, and one that much early for the previous.",
        offset, values::fixed_time, Constants),
    row!("rerun", "`on_crash`", "never",
        "With `once_per`: a run whose process died is started again in its period, once its lease has ended, by those who `wait` for it or ask then. A run that was cancelled, or whose guard was dropped, is free for another node at once. One that panicked has failed, as one that gave an error or ran out of time: it is not started again.",
        rerun, values::rerun, Words),
    row!("on_busy", "`error`, `skip`, `call(path)`", "`error`",
        "What to do while somebody else holds the lock: fail, return without having run, or call another function with the same arguments.",
        on_busy, values::on_busy, Words),
    row!("on_lost", "`cancel`, `continue`", "`cancel`",
        "What becomes of the body when the lock is lost while it runs; a function that is not async always goes on.",
        on_lost, values::on_lost, Words,
        |args, rt| said(&args.on_lost).map(|it| on_lost(*it, rt))),
    row!("on_outage", "`error`, `skip`", "`error`",
        "What to do when the store does not answer: fail, or return without having run.",
        on_outage, values::on_outage, Words),
    row!("retry", r#"`false`, `5`, `"5, 100ms..2s"`"#, "the registry's (3, 100 ms to 5 s)",
        "How often a store that fails in a way that can pass is asked again, and after which pauses.",
        retry, values::retry, Words,
        |args, rt| said(&args.retry).map(|it| some(&retry(it, rt)))),
    row!("guard", "`held`", "–",
        "A name in the body for the `Held` of the lock; a `Vec` of them with `keys`.",
        guard, values::guard, Words),
    row!("fence", "`token`", "–",
        "A name in the body for the fencing token; the function fails on a store that has none.",
        fence, values::fence, Words,
        |args, _| said(&args.fence).map(|_| quote!(true))),
    row!("name", r#"`"deduct_stock"`"#, "the function's path",
        "The lock's name in metrics, spans and the catalogue.",
        name, values::name, Words),
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

#[rustfmt::skip]
const SCHEDULED_TABLE: &[Row] = &[
    row!("name", r#"`"nightly-report"`, `"report:<region>"`"#, "required",
        "The task's name, which is the key of its lock.",
        key, key_values::template, Words),
    row!("at_most", r#"`"30m"`, or an expression of type `Duration`"#, "required",
        "How long a run may take: the lock is not renewed, so this is how long that of a dead node lasts, and a body that takes longer is cancelled. For the lock to be renewed, use `distributed_lock` with `once_per`.",
        ttl, values::time_or_expr, Expressions),
    row!("at_least", r#"`"5m"`, or a `const` of type `Duration`"#, "none",
        "How long others are kept away even if the run is over: longer than the clocks of the nodes differ. It counts from the start, so after a late one the next is late too.",
        min_hold, values::fixed_time, Constants),
    row!("backend", r#"`"redis"`, or an expression that gives a name"#, "the registry's default, or the only store that is installed",
        "The name under which the store was installed.",
        backend, values::backend, Expressions),
    row!("once_per", r#"`"1m"`, or a `const` of type `Duration`"#, "none",
        "At most one start in each period in the whole cluster, whatever the nodes' clocks say; refused where the store cannot tell its time.",
        once_per, values::fixed_time, Constants),
    row!("offset", r#"`"12h"`, or a `const` of type `Duration`"#, "none: midnight UTC for a day",
        "With `once_per`: by how much the periods' boundaries come after those counted from 1970 in UTC. A boundary must be near the time at which the task fires, as `\"12h\"` is for one that is due daily at noon: a start counts for the nearest boundary, so one that comes more than half a period late counts for the next, and one that much early for the previous.",
        offset, values::fixed_time, Constants),
    row!("rerun", "`on_crash`", "never",
        "With `once_per`: a run whose process died is started again in its period, once its lease has ended, by the next node that asks: nobody waits for it. A run that was cancelled, or whose guard was dropped, is free for another node at once. One that panicked has failed, as one that gave an error or ran out of time: it is not started again.",
        rerun, values::rerun, Words),
    row!("on_busy", "`skip`, `error`, `call(path)`", "`skip`",
        "What to do while another node runs the task.",
        on_busy, values::on_busy, Words),
    row!("on_outage", "`error`, `skip`", "`error`",
        "What to do when the store does not answer.",
        on_outage, values::on_outage, Words),
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

#[rustfmt::skip]
const OPTIMISTIC_TABLE: &[Row] = &[
    row!("retries", "`3`, or a `const` of type `u32`", "`3`",
        "How often the body is run again at most after a conflict.",
        retries, values::retries, Constants),
    row!("backoff", r#"`"50ms"`, `"50ms..2s"`"#, "`\"10ms..1s\"`",
        "The pause before that: random, up to a bound that doubles, from the first to the second (5 s).",
        backoff, values::pause, Words),
    row!("crate", "`other`, `::lib::dlock`", "`::dlock`",
        "The path under which this crate knows dlock.",
        krate, values::path, Words),
];

/// A value that is known when the program is compiled; one of a call is not in the static.
fn literal<T>(slot: &Option<Said<Given<T>>>) -> Option<&T> {
    said(slot)?.literal()
}

/// The period, with the options that belong to it.
fn once_per(args: &Args, rt: &TokenStream) -> Option<TokenStream> {
    let period = fixed_time(said(&args.once_per)?, rt);
    let offset =
        said(&args.offset).map_or_else(|| duration(std::time::Duration::ZERO), |offset| fixed_time(offset, rt));
    let rerun = args.rerun.is_some();
    Some(quote!(#rt::OncePer::new(#period).offset(#offset).rerun(#rerun)))
}

/// The reference page: each attribute, and what is said above its table.
#[cfg(test)]
pub(crate) const REFERENCE: &[(&Dialect, &str)] = &[
    (
        &LOCK,
        "Runs a function only while a distributed lock is held.\n\n\
         The function must return what its work has given, and not the work: a future inside of its `Result`, `Option` or `Outcome` is a compile error, also behind an alias. \
         **Of a type parameter nothing is known:** where `T` of a `Result<T, E>` is a future, that compiles, and its work runs after the lock is gone. The same goes for a future in a type of your own, which is how to return a handle, such as a `JoinHandle`, on purpose.",
    ),
    (&SCHEDULED, "For tasks that several nodes start at the same time: one of them runs, the others skip."),
    (&OPTIMISTIC, "Takes no lock: runs the body again while it meets conflicts with other writers."),
];
