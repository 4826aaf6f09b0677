//! The other processes: this binary again, holding locks by the attribute as a user's program does.

mod ends;
mod forked;
mod leader;
mod passing;
pub(crate) mod recipes;
mod selling;
mod stopped;
pub(crate) mod worker;

use std::env;
use std::time::Duration;

use dlock::{Error, distributed_lock};

use crate::arena::{TTL, now, patient};
use crate::cases::modes::{READERS, SEVERAL, shared_modes};
use crate::resource::Resource;

pub(crate) use forked::OTHER as FORK_OTHER;
pub(crate) use leader::ELECTION;
pub(crate) use selling::take_one;
pub(crate) use stopped::RESOURCE_VALUE_OF_THE_LATE;

/// The roles by name. Each returns when its part is over.
pub(crate) fn play(role: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // A worker connects by itself.
        if role == "work" {
            return worker::work().await;
        }
        connect().await;
        match role {
            "hold" => hold().await.unwrap(),
            "hold every mode" => hold_every_mode().await.unwrap(),
            "wait" => {
                println!("waiting");
                hold().await.unwrap();
            }
            "stopped in the body" => stopped::in_the_body().await,
            "fork" => forked::forks().await,
            "end" => ends::ends().await,
            "lead" => leader::lead().await,
            "sell in the transaction" => selling::sell().await,
            "pass on" => passing::pass_on().await,
            other => panic!("no role {other}"),
        }
    });
}

/// Holds until it is killed.
#[distributed_lock(key = "job", ttl = "2s", wait = "60s")]
async fn hold() -> Result<(), Error> {
    println!("held {} {}", dlock::current().unwrap().fence()?.get(), now().as_nanos());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(())
}

async fn hold_every_mode() -> Result<(), Error> {
    let (mut guards, mut tokens) = (Vec::new(), Vec::new());
    for (key, mode, _) in shared_modes(var(READERS) == "true") {
        let guard = dlock::lock(key).mode(mode).ttl(TTL).acquire().await?;
        tokens.push(guard.fence()?.get());
        guards.push(guard);
    }
    let several = dlock::lock_all(SEVERAL).ttl(TTL).acquire().await?;
    for held in several.held() {
        tokens.push(held.fence()?.get());
    }
    let tokens: Vec<_> = tokens.iter().map(u64::to_string).collect();
    println!("held {}", tokens.join(" "));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(())
}

async fn connect() {
    let namespace = var("NAMESPACE");
    dlock::configure(|defaults| {
        defaults.namespace = namespace;
        defaults.retry = patient();
    })
    .unwrap();
    crate::store::connect(dlock::Registry::global(), &var("LOCKS")).await.unwrap();
}

async fn connect_once() -> dlock::Result<()> {
    crate::store::connect(dlock::Registry::global(), &var("LOCKS")).await
}

fn resource() -> Resource {
    Resource { url: var("RESOURCE") }
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("the variable {name} is not set"))
}
