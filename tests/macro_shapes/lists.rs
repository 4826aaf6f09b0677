#![deny(warnings)]
//! Lists in keys: types that `for` iterates by reference, and smart pointers to them.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use dlock::{Error, distributed_lock};

/// Leads to a list without being one.
struct Ids(Vec<u64>);

impl Deref for Ids {
    type Target = Vec<u64>;

    fn deref(&self) -> &Vec<u64> {
        &self.0
    }
}

/// A list of its own.
struct Names(Vec<String>);

impl<'a> IntoIterator for &'a Names {
    type Item = &'a String;
    type IntoIter = std::slice::Iter<'a, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

struct Order<'a> {
    ids: &'a [u64],
    parts: Box<[Arc<str>]>,
}

#[distributed_lock(keys = ["<ids..>", "<more..>", "<set..>", "<sorted..>", "<queue..>", "<maybe..>"])]
async fn owned(
    ids: Vec<u64>,
    more: [u8; 4],
    set: HashSet<String>,
    sorted: BTreeSet<i32>,
    queue: VecDeque<char>,
    maybe: Option<u64>,
) -> Result<(), Error> {
    drop((ids, more, set, sorted, queue, maybe));
    Ok(())
}

#[distributed_lock(keys = ["<ids..>", "<shared..>", "<counted..>", "<cow..>", "<own..>", "<names..>", "<twice..>"])]
async fn behind_something(
    ids: &mut Vec<u64>,
    shared: Arc<Vec<u64>>,
    counted: &Rc<[u64]>,
    cow: Cow<'_, [u64]>,
    own: Ids,
    names: &Names,
    twice: &&[u64],
) -> Result<usize, Error> {
    ids.clear();
    Ok(shared.len() + counted.len() + cow.len() + own.len() + names.0.len() + twice.len())
}

#[distributed_lock(keys = ["<order.ids..>", "<order.parts..>"])]
async fn fields(order: &Order<'_>) -> Result<bool, Error> {
    Ok(order.parts.is_empty())
}

#[distributed_lock(keys = "<list..>")]
async fn generic<L>(list: &L) -> Result<(), Error>
where
    for<'a> &'a L: IntoIterator<Item = &'a u64>,
{
    Ok(())
}

pub(crate) fn make() {
    drop(owned(vec![1], [0; 4], HashSet::new(), BTreeSet::new(), VecDeque::new(), None));
    let (mut ids, counted): (_, Rc<[u64]>) = (vec![1], Rc::from([2]));
    let (shared, cow) = (Arc::new(vec![1]), Cow::Borrowed(&[3][..]));
    drop(behind_something(&mut ids, shared, &counted, cow, Ids(vec![4]), &Names(Vec::new()), &&[5][..]));
    drop(fields(&Order { ids: &[1], parts: Box::new([]) }));
    drop(generic(&vec![1]));
}
