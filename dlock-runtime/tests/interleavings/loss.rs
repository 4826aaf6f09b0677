//! The end of a hold: its loss against its release, and the tasks that want to hear of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::LossCause;
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::hold::hold_state::HoldState;
use crate::models::{holds_and_finds, join_all};

#[test]
fn a_body_hears_of_its_loss_in_any_order() {
    holds_and_finds("a task looks before it listens", || {
        let state = Arc::new(HoldState::held());
        let (body, beside, loser) = (state.clone(), state.clone(), state);
        join_all(vec![
            thread::spawn(move || {
                block_on(poll_fn(|cx| body.listen_and_look(|all| all.listen(cx.waker()), || lost(&body))));
            }),
            thread::spawn(move || block_on(heard_beside(&beside))),
            thread::spawn(move || assert!(loser.mark_lost(LossCause::Deadline))),
        ]);
    });
}

#[test]
fn a_listener_that_goes_away_keeps_the_news_from_nobody() {
    holds_and_finds("a loss wakes nobody", || {
        let state = Arc::new(HoldState::held());
        let (stays, goes, loser) = (state.clone(), state.clone(), state);
        join_all(vec![
            thread::spawn(move || block_on(heard_beside(&stays))),
            thread::spawn(move || {
                let mut id = 0;
                let _ = block_on(poll_fn(|cx| Poll::Ready(polled_beside(&goes, &mut id, cx))));
                goes.forget(id);
            }),
            thread::spawn(move || assert!(loser.mark_lost(LossCause::Store))),
        ]);
    });
}

#[test]
fn a_hold_ends_once_and_for_one_cause() {
    holds_and_finds("a hold ends twice", || {
        let (state, ends) = (Arc::new(HoldState::held()), Arc::new(AtomicUsize::new(0)));
        let enders: [fn(&HoldState) -> bool; 3] = [
            |state| state.end(),
            |state| state.mark_lost(LossCause::Deadline),
            |state| state.mark_lost(LossCause::Broken),
        ];
        let threads = enders.map(|ender| {
            let (state, ends) = (state.clone(), ends.clone());
            thread::spawn(move || {
                ends.fetch_add(usize::from(ender(&state)), Ordering::SeqCst);
            })
        });
        join_all(threads.into());
        assert_eq!(ends.load(Ordering::SeqCst), 1);
        assert!(!state.is_held() && state.ended().is_some());
    });
}

fn lost(state: &HoldState) -> Poll<()> {
    if state.is_held() { Poll::Pending } else { Poll::Ready(()) }
}

fn polled_beside(state: &HoldState, id: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
    let listen = |all: &mut crate::hold::listeners::LossListeners| {
        let (number, old) = all.listen_beside(*id, cx.waker());
        *id = number;
        old
    };
    state.listen_and_look(listen, || lost(state))
}

async fn heard_beside(state: &HoldState) {
    let mut id = 0;
    poll_fn(|cx| polled_beside(state, &mut id, cx)).await;
    state.forget(id);
}
