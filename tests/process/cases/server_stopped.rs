//! A server that stands still for longer than the ttl, as on a suspended machine, and goes on.

use dlock::{ErrorKind, LossCause};

use crate::arena::{Arena, TTL, job};

pub(super) fn a_stopped_server_makes_no_second_holder(arena: &Arena) {
    arena.run(async {
        let (first, second) = (arena.near().await, arena.near().await);
        let guard = job(&first).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&second).acquire());
        arena.until_waiting(&second, 1).await;
        arena.servers.iter().for_each(|server| server.pause().unwrap());
        tokio::time::sleep(TTL * 2).await;
        let loss = guard.check().unwrap_err();
        assert_eq!(*loss.kind(), ErrorKind::Lost(LossCause::Deadline));
        arena.servers.iter().for_each(|server| server.resume().unwrap());
        // The waiter may have been told of the outage; then it asks again, as its error says. A store that has kept
        // failing is asked about once a second, so the first answer may be a moment away.
        let mut asked = waiting.await.unwrap();
        let next = loop {
            match asked {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            asked = job(&second).acquire().await;
        };
        assert!(next.fence().unwrap().get() > guard.fence().unwrap().get());
        next.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
