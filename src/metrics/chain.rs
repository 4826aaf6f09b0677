//! A list to which values are only added, so that each event reads it without a lock.

use std::sync::OnceLock;

pub(super) struct Chain<T>(OnceLock<Box<Link<T>>>);

struct Link<T> {
    value: T,
    next: Chain<T>,
}

impl<T> Chain<T> {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub(super) fn find(&self, fits: impl Fn(&T) -> bool) -> Option<&T> {
        self.search(fits).ok()
    }

    pub(super) fn find_or_add(&self, fits: impl Fn(&T) -> bool, make: impl Fn() -> T) -> &T {
        let mut chain = self;
        loop {
            match chain.search(&fits) {
                Ok(value) => return value,
                // Another thread may add one too. Then this one looks at it, and goes on behind it.
                Err(end) => {
                    end.0.get_or_init(|| Box::new(Link { value: make(), next: Self::new() }));
                    chain = end;
                }
            }
        }
    }

    /// The value that fits, or the end of the chain.
    #[inline]
    fn search(&self, fits: impl Fn(&T) -> bool) -> Result<&T, &Self> {
        let mut chain = self;
        while let Some(link) = chain.0.get() {
            if fits(&link.value) {
                return Ok(&link.value);
            }
            chain = &link.next;
        }
        Err(chain)
    }
}
