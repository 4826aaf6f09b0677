//! One holder at a time. Only the owner id tells holders apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock_contract::{Claim, Error, Hold, Origin, Owner, Queue, Released};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, TRIES};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("many owners at once never hold the lock together", always, all_at_once),
    case!("clients that reach only a part of the store and others never hold the lock together", always, in_part),
    case!("clients with different settings never hold the lock together", always, with_settings),
    case!("a client that would lock in another way gets no lock, and its probe says so", always, in_another_way),
    case!("a second owner is refused, from any client", always, second_owner),
    case!("an owner may ask again, and one release frees the lock", always, asked_again),
    case!("a repeated request of an owner begins its lease anew", always, armed_anew),
    case!("a release frees the lock and says so", always, release_frees),
    case!("a late release returns NotOwner and leaves the next holder alone", always, late_release),
    case!("an owner id that differs in one byte changes nothing", leases, stranger),
    case!("a renewal after another owner has come in is Lost", always, renewal_of_the_former),
    case!("a hold outlives the runtime in which it was taken", many_runtimes, other_runtime),
];

/// A counter that is read and written in two steps, as a resource without any protection of its own.
#[derive(Default)]
struct Resource {
    inside: AtomicU32,
    counter: AtomicU32,
    overlaps: AtomicU32,
}

async fn all_at_once(fixture: &Fixture<'_>) -> Tested {
    let clients = [fixture.client().await?, fixture.client().await?, fixture.client().await?];
    side_by_side(fixture, &clients).await
}

/// "Try this store, and if it cannot be reached take that one" is no lock: each half of the clients has one of its own.
async fn in_part(fixture: &Fixture<'_>) -> Tested {
    let (one, part, other) = (fixture.client().await?, fixture.client_of_a_part().await?, fixture.client().await?);
    // First in turn: side by side, the clients of one half may be done before the other half begins.
    in_turn(fixture, [(&one, &part), (&part, &other)]).await?;
    side_by_side(fixture, &[one, part, other]).await
}

/// A setting may neither be a part of the lock's name nor choose another way to lock.
async fn with_settings(fixture: &Fixture<'_>) -> Tested {
    let (one, special) = (fixture.client().await?, fixture.client_with_other_settings().await?);
    in_turn(fixture, [(&one, &special), (&special, &one)]).await
}

/// Two ways to lock one key are two locks. The namespace belongs to the way in which it was locked first.
async fn in_another_way(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client_in_another_way().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.give_back(&hold).await?;
    // The lock is free: it is the way that is refused.
    let claim = fixture.claim(&key, fixture.long())?;
    let refusal = match other.backend.try_acquire(&claim, Queue::Leave).await {
        Err(error) => refused_for_good(error)?,
        Ok(answer) => return Err(Stop::Failed(format!("locked in another way, it answered {answer:?}"))),
    };
    match other.backend.admits(&key).await {
        Ok(()) => Err(Stop::Failed(format!("the probe admits the namespace, and an acquisition gets: {refusal}"))),
        Err(error) => {
            let told = refused_for_good(error)?;
            ensure!(told.kind() == refusal.kind(), "the probe says {told}, and an acquisition gets: {refusal}");
            Ok(one.backend.admits(&key).await?)
        }
    }
}

/// A refusal that no retry changes. Anything else proves nothing, or is wrong.
fn refused_for_good(error: Error) -> Tested<Error> {
    if error.is_retryable() { Err(error.into()) } else { Ok(error) }
}

async fn in_turn(fixture: &Fixture<'_>, pairs: [(&Client, &Client); 2]) -> Tested {
    for (holder, asker) in pairs {
        let key = fixture.key()?;
        let hold = holder.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
        asker.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
        holder.give_back(&hold).await?;
    }
    Ok(())
}

/// Clients that work under one lock. Each has several owners, one after another.
async fn side_by_side(fixture: &Fixture<'_>, clients: &[Client]) -> Tested {
    const ROUNDS: u32 = 3;
    let (key, resource) = (fixture.key()?, Arc::new(Resource::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        // Some join the queue and some only try: a grant may come either way.
        for in_line in [true, true, false] {
            let claims = (0..ROUNDS).map(|_| fixture.claim(&key, fixture.long())).collect::<Tested<Vec<_>>>()?;
            tasks.spawn(work(client.clone(), claims, in_line, resource.clone()));
        }
    }
    let expected = u32::try_from(tasks.len()).unwrap_or(0) * ROUNDS;
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Stop::Failed(format!("a worker failed: {error}")))??;
    }
    let (overlaps, counter) = (resource.overlaps.load(Ordering::SeqCst), resource.counter.load(Ordering::SeqCst));
    ensure!(overlaps == 0, "two owners held the lock together {overlaps} times");
    ensure!(counter == expected, "the counter is {counter} after {expected} increments under the lock");
    Ok(())
}

async fn work(client: Client, claims: Vec<Arc<Claim>>, in_line: bool, resource: Arc<Resource>) -> Tested {
    for claim in claims {
        let bound = Duration::from_secs(60);
        let hold = if in_line { client.wait(&claim, bound).await? } else { client.take_within(&claim, bound).await? };
        if resource.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            resource.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let seen = resource.counter.load(Ordering::SeqCst);
        pause(2).await;
        resource.counter.store(seen + 1, Ordering::SeqCst);
        resource.inside.fetch_sub(1, Ordering::SeqCst);
        client.give_back(&hold).await?;
    }
    Ok(())
}

async fn second_owner(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let first = fixture.claim(&key, fixture.long())?;
    // Host, process, site and millisecond are the same. Only the owner id differs.
    let owner = Owner::fresh()?;
    let second = Arc::new(Claim::clone(&first).with(|claim| claim.owner = owner));
    let hold = one.take(&first).await?;
    one.refused(&second, Queue::Leave, hold.validity).await?;
    other.refused(&second, Queue::Leave, hold.validity).await?;
    one.give_back(&hold).await
}

async fn asked_again(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    // The reply to the first attempt is lost.
    let _lost = one.take(&claim).await?;
    let hold = match one.ask(&claim, Queue::Leave).await? {
        dlock_contract::Attempt::Acquired(hold) => hold,
        dlock_contract::Attempt::Contended(_) | dlock_contract::Attempt::AlreadyRun => {
            return Err(Stop::Failed("an owner was refused the lock that it holds itself".into()));
        }
    };
    one.give_back(&hold).await?;
    let next = fixture.claim(&key, fixture.long())?;
    let next = other.take_within(&next, SLACK).await?;
    other.give_back(&next).await
}

async fn armed_anew(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.short())?;
    let first = one.take(&claim).await?;
    tokio::time::sleep(fixture.short() / 4).await;
    let asked = fixture.clock.now();
    one.in_time(first.validity)?;
    let dlock_contract::Attempt::Acquired(again) = one.ask(&claim, Queue::Leave).await? else {
        // A store that looks twice may see the first lease, and then that it has ended.
        one.in_time(first.validity)?;
        return Err(Stop::Failed("an owner was refused the lock that it holds itself".into()));
    };
    ensure!(again.validity.from >= asked, "the validity of a repeated request counts from an earlier request");
    let second = fixture.claim(&key, fixture.short())?;
    let first_end = first.validity.from.after(first.validity.granted);
    let mut outlived = false;
    while fixture.clock.now() < again.validity.deadline() {
        let sent = fixture.clock.now();
        if let dlock_contract::Attempt::Acquired(_) = other.ask(&second, Queue::Leave).await? {
            let now = fixture.clock.now();
            ensure!(
                now >= again.validity.deadline(),
                "another owner got the lock before the deadline of the repeated request"
            );
            break;
        }
        outlived |= sent >= first_end;
        pause(10).await;
    }
    // On a busy machine nobody may have asked between the two ends. Then the run proves nothing.
    if outlived { Ok(()) } else { Err(Stop::Late) }
}

async fn release_frees(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    for _ in 0..3 {
        let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
        one.end(&hold, None, None).await?;
        let next = other.take(&fixture.claim(&key, fixture.long())?).await?;
        other.end(&next, None, None).await?;
    }
    Ok(())
}

async fn late_release(fixture: &Fixture<'_>) -> Tested {
    let (one, other, former, holder) = displaced(fixture).await?;
    let end = fixture.clock.now().after(SLACK);
    loop {
        match one.backend.release(&former).await {
            Ok(Released::NotOwner) => break,
            Ok(Released::Released) => {
                return Err(Stop::Failed("a late release returned Released".into()));
            }
            // The session of the old holder broke, so the answer may be an error for a moment.
            Err(error) => ensure!(fixture.clock.now() < end, "a late release did not return NotOwner: {error}"),
        }
        pause(50).await;
    }
    untouched(fixture, &one, &other, &holder).await
}

async fn renewal_of_the_former(fixture: &Fixture<'_>) -> Tested {
    let (one, other, former, holder) = displaced(fixture).await?;
    one.lost(&former).await?;
    untouched(fixture, &one, &other, &holder).await
}

/// A lock that an operator took from its holder and that another owner holds now.
async fn displaced(fixture: &Fixture<'_>) -> Tested<(Client, Client, Hold, Hold)> {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = one.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.evict(&key).await?;
    let next = fixture.claim(&key, fixture.long())?;
    let holder = other.take_within(&next, SLACK).await?;
    Ok((one, other, former, holder))
}

/// Checks that the holder still has its lock.
async fn untouched(fixture: &Fixture<'_>, one: &Client, other: &Client, holder: &Hold) -> Tested {
    let third = fixture.claim(&holder.claim.key, fixture.long())?;
    one.refused(&third, Queue::Leave, holder.validity).await?;
    other.renew(holder, holder.validity).await?;
    other.give_back(holder).await
}

async fn stranger(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let holder = one.take(&fixture.claim(&key, fixture.long())?).await?;
    for index in [0, 15] {
        let mut bytes = *holder.claim.owner.as_bytes();
        bytes[index] ^= 1;
        // The other owner holds a lock of its own, so it has the session that the store may need.
        let elsewhere = Claim::new(fixture.key()?, fixture.long(), "stranger")?
            .with(|claim| claim.owner = Owner::from_bytes(bytes));
        let own = other.take(&Arc::new(elsewhere)).await?;
        let claim = Arc::new(Claim::clone(&own.claim).with(|claim| claim.key = key.clone()));
        let mut forged = own.for_claim(claim);
        forged.token = holder.token;
        // The answer to it does not matter. The holder must not notice anything.
        let _ = other.backend.renew(&[&forged]).await;
        let _ = other.backend.release(&forged).await;
        other.backend.abandon(&forged.claim).await?;
        let _ = other.backend.release(&own).await;
        other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, holder.validity).await?;
    }
    one.renew(&holder, holder.validity).await?;
    one.give_back(&holder).await
}

async fn other_runtime(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    let taken = tokio::task::spawn_blocking({
        let (one, claim) = (one.clone(), claim.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Stop::Failed(format!("no runtime could be started: {error}")))?;
            // The claim knows its runtime, like the claims of the engine.
            let claim =
                Arc::new(Claim::clone(&claim).with(|claim| claim.origin = runtime.block_on(async { Origin::here() })));
            runtime.block_on(one.take(&claim))
        }
    });
    let hold = taken.await.map_err(|error| Stop::Failed(format!("the other runtime failed: {error}")))??;
    // More than once, because the first answer may only say that the old connection is gone.
    let mut answer = one.renewal(&hold).await?;
    for _ in 1..TRIES {
        if answer.is_err() {
            answer = one.renewal(&hold).await?;
        }
    }
    ensure!(
        matches!(answer, Ok(dlock_contract::Standing::Renewed(_))),
        "after its runtime had ended, a hold was not renewed from another one: {answer:?}"
    );
    one.give_back(&hold).await?;
    other.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    Ok(())
}
