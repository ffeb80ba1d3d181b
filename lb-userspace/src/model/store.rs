//! The list of one kind, and whether it is whole.
//!
//! A new list is gathered aside and takes effect when it is done, so that a half-read list
//! never looks like a deletion. Equal objects told twice are no change.

use std::collections::{BTreeMap, BTreeSet};

use crate::desired::ObjectName;
use crate::watch::Change;
use crate::watch::object::Named;

/// Objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Store<T> {
    live: BTreeMap<ObjectName, T>,
    /// The list that is being gathered, since the last `Init`.
    next: Option<BTreeMap<ObjectName, T>>,
    complete: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            next: None,
            complete: false,
        }
    }
}

/// What a change did to one object.
#[derive(Debug)]
pub(super) struct Touched<T> {
    pub(super) name: ObjectName,
    /// As it was, when it was.
    pub(super) before: Option<T>,
}

impl<T: Clone + Named + PartialEq> Store<T> {
    /// Takes a change; returns the objects that are now different.
    pub(super) fn apply(&mut self, change: Change<T>) -> Vec<Touched<T>> {
        match (change, &mut self.next) {
            (Change::Init, next) => {
                *next = Some(BTreeMap::new());
                Vec::new()
            }
            (Change::Apply(object), Some(next)) => {
                next.insert(object.object_name().clone(), object);
                Vec::new()
            }
            (Change::Delete(name), Some(next)) => {
                next.remove(&name);
                Vec::new()
            }
            (Change::Keep(name), Some(next)) => {
                if let Some(known) = self.live.get(&name) {
                    next.insert(name, known.clone());
                }
                Vec::new()
            }
            (Change::Keep(_), None) => Vec::new(),
            (Change::Apply(object), None) => self.put(object).into_iter().collect(),
            (Change::Delete(name), None) => {
                let before = self.live.remove(&name);
                before
                    .map(|before| Touched {
                        name,
                        before: Some(before),
                    })
                    .into_iter()
                    .collect()
            }
            (Change::InitDone, next) => {
                self.complete = true;
                // Without a beginning it ends no list: there is nothing to swap in.
                next.take().map(|next| self.swap(next)).unwrap_or_default()
            }
        }
    }

    fn put(&mut self, object: T) -> Option<Touched<T>> {
        let name = object.object_name().clone();
        if self.live.get(&name) == Some(&object) {
            return None;
        }
        let before = self.live.insert(name.clone(), object);
        Some(Touched { name, before })
    }

    fn swap(&mut self, next: BTreeMap<ObjectName, T>) -> Vec<Touched<T>> {
        let gone: BTreeSet<_> = self
            .live
            .keys()
            .filter(|n| !next.contains_key(n))
            .cloned()
            .collect();
        let removed = gone.into_iter().map(|name| Touched {
            before: self.live.remove(&name),
            name,
        });
        let mut touched: Vec<_> = removed.collect();
        touched.extend(next.into_values().filter_map(|object| self.put(object)));
        touched
    }

    pub(super) fn get(&self, name: &ObjectName) -> Option<&T> {
        self.live.get(name)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.live.values()
    }

    /// True once a list has been told to its end; a new list does not take that back.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::object::Node;

    fn node(name: &str, unschedulable: bool) -> Node {
        let name = ObjectName {
            name: name.into(),
            ..ObjectName::default()
        };
        Node {
            name,
            unschedulable,
            ..Node::default()
        }
    }

    fn names(touched: &[Touched<Node>]) -> Vec<&str> {
        touched.iter().map(|t| t.name.name.as_str()).collect()
    }

    #[test]
    fn a_list_takes_effect_when_it_is_done() {
        let mut store = Store::default();
        assert!(store.apply(Change::Init).is_empty());
        assert!(store.apply(Change::Apply(node("a", false))).is_empty());
        assert!(store.apply(Change::Apply(node("b", false))).is_empty());
        assert!(!store.is_complete());
        assert_eq!(store.values().count(), 0);
        assert_eq!(names(&store.apply(Change::InitDone)), ["a", "b"]);
        assert!(store.is_complete());
    }

    #[test]
    fn a_second_list_drops_what_it_does_not_mention_and_not_before_its_end() {
        let mut store = Store::default();
        for name in ["a", "b", "c"] {
            store.apply(Change::Apply(node(name, false)));
        }
        store.apply(Change::Init);
        store.apply(Change::Apply(node("a", false)));
        store.apply(Change::Apply(node("b", true)));
        assert_eq!(store.values().count(), 3, "the old list stays in force");
        let touched = store.apply(Change::InitDone);
        assert_eq!(names(&touched), ["c", "b"], "the equal one is not touched");
        assert!(touched.iter().all(|t| t.before.is_some()));
        assert_eq!(store.values().count(), 2);
    }

    #[test]
    fn what_cannot_be_read_any_more_stays_as_it_was() {
        let mut store = Store::default();
        store.apply(Change::Apply(node("a", true)));
        store.apply(Change::Init);
        store.apply(Change::Keep(node("a", false).name));
        store.apply(Change::Keep(node("never seen", false).name));
        assert!(store.apply(Change::InitDone).is_empty());
        assert_eq!(store.values().collect::<Vec<_>>(), [&node("a", true)]);
    }

    #[test]
    fn equal_objects_and_unknown_deletions_are_no_change() {
        let mut store = Store::default();
        assert_eq!(store.apply(Change::Apply(node("a", false))).len(), 1);
        assert!(store.apply(Change::Apply(node("a", false))).is_empty());
        assert!(
            store
                .apply(Change::Delete(node("z", false).name))
                .is_empty()
        );
        assert_eq!(store.apply(Change::Delete(node("a", false).name)).len(), 1);
    }
}
