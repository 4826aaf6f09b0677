//! Finds a lock by the key that somebody types: `stock:42` is `stock:<42>` in most programs.

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Error, ErrorKind, Key, LockKey, Result};

use crate::api::inspect::{ListedLock, Locks, state_of};
use crate::events::store_event::Operation;
use crate::hold::store::request_bound;

/// A search looks at this many pages of [`PAGE_ENTRIES`].
const PAGE_LIMIT: usize = 100;

/// A key with more parts than this is tried in two forms only: with each part after the first one as a value, and with
/// only the last part as a value. After them the locks are listed.
const PART_LIMIT: usize = 5;

const PAGE_ENTRIES: u32 = 1000;

impl Locks {
    /// Finds the lock of a key that somebody types, if it is held. Otherwise finds the held locks whose keys are the
    /// same without the marks of values: `stock:42` finds `stock:<42>`.
    ///
    /// It first asks for the keys in which parts between two `:` or `/` are values. If none of them is held, it lists
    /// the locks that begin with the text up to its first `:` or `/`, if the store can list.
    ///
    /// ```
    /// # use dlock_runtime::Key;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let guard = registry.lock(Key::text("stock:").value(&42)).acquire().await?;
    /// let found = registry.locks().like("stock:42").await?;
    /// assert_eq!(found[0].key.as_str(), "dl1:default:stock:<42>");
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Lock::holders`](crate::Lock::holders) and of [`page`](Self::page). `Unsupported` if more than 100 000
    /// locks begin like this one, because it does not look at more.
    pub async fn like(self, text: &str) -> Result<Vec<ListedLock>> {
        let context = self.registry.context();
        let bound = request_bound(context.defaults().ttl);
        let store = context.opened(self.backend.as_deref(), bound).await?;
        let named = |error: Error| error.with_backend(&store.name);
        let identify = |text: &str| store.identify(&self.listing.namespace, &KeyBuf::from(Key::rendered(text)));
        let held = async |key: LockKey| {
            let state = store.ask(Operation::Inspect, bound, &key, state_of).await;
            let state = state.map_err(|error| named(error.with_key(key.as_str())))?;
            Ok::<_, Error>(ListedLock { key, state })
        };
        let own = held(identify(text).map_err(named)?.0).await?;
        if !own.state.holders.is_empty() {
            return Ok(vec![own]);
        }
        let mut found = Vec::new();
        // With its marks a key may be too long for the store.
        for (marked, _) in with_marks(text).iter().filter_map(|marked| identify(marked).ok()) {
            found.push(held(marked).await?);
        }
        found.retain(|lock| !lock.state.holders.is_empty());
        if !found.is_empty() {
            return Ok(found);
        }
        let without_marks = |key: &str| key.replace(['<', '>'], "");
        let wanted = without_marks(own.key.as_str());
        // A value may begin at any place, but most keys begin with a word of the program.
        let prefix = text.split_inclusive([':', '/']).next().filter(|prefix| *prefix != text).unwrap_or_default();
        let mut pages = self.prefix(prefix).limit(PAGE_ENTRIES);
        for _ in 0..PAGE_LIMIT {
            let page = match pages.clone().page().await {
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => return Ok(found),
                page => page?,
            };
            found.extend(page.locks.into_iter().filter(|lock| without_marks(lock.key.as_str()) == wanted));
            let Some(next) = page.next else { return Ok(found) };
            pages = pages.after(next);
        }
        if !found.is_empty() {
            return Ok(found);
        }
        Err(named(Error::new(
            ErrorKind::Unsupported { need: "the whole key".into() },
            format!(
                "too many locks begin with {prefix:?} to look for one like {text:?}: write its key in full, with the marks around its values"
            ),
        )))
    }
}

/// The texts in which some parts are values, as templates write them.
fn with_marks(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split_inclusive([':', '/']).collect();
    let marked = |part: &str| {
        let value = part.trim_end_matches([':', '/']);
        format!("<{value}>{}", &part[value.len()..])
    };
    let is_plain = |part: &str| !part.contains(['<', '>']) && !part.starts_with([':', '/']);
    let with = |marks: u32| -> Option<String> {
        let text = parts.iter().enumerate().map(|(at, part)| match marks >> at & 1 {
            0 => Some((*part).to_owned()),
            _ => is_plain(part).then(|| marked(part)),
        });
        text.collect()
    };
    let count = parts.len();
    if count <= PART_LIMIT {
        return (1..1 << count).filter_map(with).collect();
    }
    let marks_of = |from: usize| {
        parts.iter().enumerate().map(move |(at, part)| if at < from { (*part).to_owned() } else { marked(part) })
    };
    [marks_of(1).collect(), marks_of(count - 1).collect()].into()
}

#[cfg(test)]
mod tests {
    use super::with_marks;

    #[test]
    fn the_parts_of_a_key_may_be_values() {
        assert_eq!(with_marks("stock:42"), ["<stock>:42", "stock:<42>", "<stock>:<42>"]);
        assert_eq!(with_marks("stock:<42>"), ["<stock>:<42>"]);
        assert_eq!(with_marks("a/b:c").len(), 7);
        assert_eq!(with_marks("a:b:c:d:e:f"), ["a:<b>:<c>:<d>:<e>:<f>", "a:b:c:d:e:<f>"]);
        assert!(with_marks("").is_empty());
    }
}
