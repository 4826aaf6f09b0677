//! Requests of one client that meet: holds are released while the client renews them, and while its store watches them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_contract::{Error, Expiry, Hold, Standing};
use futures::future::{try_join, try_join_all};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::tested::{Stop, Tested, ensure};

pub(crate) const CASES: &[Case] =
    &[case!("a release that meets renewals and looks reports no loss and ends no other hold", always, releases)];

/// Stores keep this many holds in one lease or session, and renew all of them at once.
const HOLDS: usize = 24;

async fn releases(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    let taking = (0..HOLDS).map(|_| async {
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        client.take(&claim).await
    });
    let holds = try_join_all(taking).await?;
    let all: Vec<&Hold> = holds.iter().collect();
    // In peace. What goes wrong without a meeting is the matter of other cases.
    let last = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    let in_peace = client.backend.release(&last).await?;
    let is_renewed = |answer: &Result<Standing, Error>| matches!(answer, Ok(Standing::Renewed(_)));
    if !client.backend.renew(&all).await.iter().all(is_renewed) {
        return Ok(());
    }
    // From the middle: the order of the answers is not the matter here either.
    let (ended, kept): (Vec<_>, Vec<_>) =
        holds.iter().enumerate().partition(|(at, _)| (HOLDS / 4..HOLDS * 3 / 4).contains(at));
    // A store that must tell the end of a session looks at its holds at least this often. The releases come between.
    let look = match fixture.profile.expiry {
        Expiry::Session { told } => told,
        _ => Duration::ZERO,
    };
    tokio::time::sleep(look).await;
    let is_over = AtomicBool::new(false);
    let releasing = async {
        for (_, hold) in ended {
            let released = client.backend.release(hold).await?;
            if released != in_peace {
                client.in_time(hold.validity)?;
            }
            ensure!(
                released == in_peace,
                "a release returned {released:?}, and {in_peace:?} without a renewal beside it"
            );
            tokio::time::sleep(look / 6).await;
        }
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let renewing = async {
        while !is_over.load(Ordering::Relaxed) {
            let answers = client.backend.renew(&all).await;
            // A store inside of the process answers at once, and the releases have their turn too.
            tokio::task::yield_now().await;
            ensure!(answers.len() == HOLDS, "{HOLDS} renewals have {} answers", answers.len());
            for (at, hold) in &kept {
                let answer = &answers[*at];
                // No answer in time is no loss: the renewals at the end must have one.
                let is_unanswered = answer.as_ref().is_err_and(Error::is_retryable);
                if !is_renewed(answer) && !is_unanswered {
                    client.in_time(hold.validity)?;
                    return Err(Stop::Failed(format!(
                        "beside the release of another hold, a renewal returned {answer:?}"
                    )));
                }
            }
        }
        Ok(())
    };
    try_join(releasing, renewing).await?;
    for (_, hold) in &kept {
        client.renew(hold, hold.validity).await?;
        client.give_back(hold).await?;
    }
    Ok(())
}
