//! Small steps of the cases.

use dlock::{Key, LockKey};
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, take_against, token};

use crate::named_kit::TTL;
use crate::row_kit::{BODY_SEES, open, transaction_of};

/// One lock from its grant to its end, by stores with this URL, in a namespace of its own: one hold with work and one without.
pub(crate) async fn row_cycle(url: &str, text: &str) {
    let (one, other) = (open(url).await.unwrap(), open(url).await.unwrap());
    let key = LockKey::new("row-cycle", Key::new().value(text)).unwrap();
    let claim = || claim_on(&key, TTL, |_| ());
    let hold = take_against(&one, &other, &claim()).await;
    let mut transaction = transaction_of(&hold).unwrap();
    let (seen,): (String,) =
        sqlx::query_as(BODY_SEES.0).fetch_one(&mut *transaction.conn().await.unwrap()).await.unwrap();
    assert_eq!(seen, BODY_SEES.1, "{text}: a body's session has the server's settings");
    drop(transaction);
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "{text}");
    one.settle().unwrap().settle(&hold).await.unwrap();
    let next = take(&other, &claim()).await;
    assert!(token(&next) > token(&hold), "{text}");
    assert_eq!(other.release(&next).await.unwrap(), Released::Released, "{text}");
}
