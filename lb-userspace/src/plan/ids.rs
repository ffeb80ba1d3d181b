//! Small stable numbers for endpoints and frontends: what the kernel's maps are indexed by.
//!
//! Flows hold an endpoint's id for hours after the endpoint left, so a released id is quarantined
//! until a sweep of everything that can hold it has begun after the release and did not find it.
//! A key that comes back in the meantime gets its old id: for its flows nothing happened. Ids are
//! handed out in a circle, so that a fresh one is the one unused for longest.
//! An id must never be given to another key while anything may still mean the old one by it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use thiserror::Error;

/// Ids of endpoints; 0 is no endpoint.
pub const ENDPOINT_IDS: Range<u32> = 1..131_072;

/// Ids of frontends; 0 is no frontend.
pub const FRONTEND_IDS: Range<u32> = 1..16_384;

/// Why an id could not be given.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum IdError {
    /// All ids are in use or in quarantine.
    #[error("all {total} ids are taken, {quarantined} of them by what flows may still hold")]
    Exhausted {
        /// Ids there are.
        total: usize,
        /// Ids in quarantine.
        quarantined: usize,
    },
    /// An id to adopt is outside of the range.
    #[error("id {id} is out of range")]
    OutOfRange {
        /// The id.
        id: u32,
    },
    /// An id or a key to adopt is already in use with another.
    #[error("id {id} or its key is already in use")]
    InUse {
        /// The id.
        id: u32,
    },
}

/// Ids in use and in quarantine, by key.
#[derive(Clone, Debug)]
pub struct Ids<K> {
    range: Range<u32>,
    grace: Duration,
    /// Where the search for a free id goes on.
    cursor: u32,
    by_key: BTreeMap<K, u32>,
    by_id: BTreeMap<u32, Holder<K>>,
    quarantined: usize,
}

#[derive(Clone, Debug)]
struct Holder<K> {
    /// None for an id that was found in a flow after a restart, and nowhere else.
    key: Option<K>,
    /// When it was released; None while it is in use.
    released: Option<Duration>,
}

impl<K: Clone + Ord> Ids<K> {
    /// All ids of `range` are free. `grace` is how long after a release a packet that was under
    /// way may still make a flow of the id: a sweep that begins sooner says nothing about it.
    pub fn new(range: Range<u32>, grace: Duration) -> Self {
        let cursor = range.start;
        Self {
            range,
            grace,
            cursor,
            by_key: BTreeMap::new(),
            by_id: BTreeMap::new(),
            quarantined: 0,
        }
    }

    /// The id of `key`: the one it has or had until lately, else a free one.
    pub fn assign(&mut self, key: &K) -> Result<u32, IdError> {
        if let Some(&id) = self.by_key.get(key) {
            self.settle(id, key.clone());
            return Ok(id);
        }
        let id = self.next_free()?;
        self.cursor = id + 1;
        self.settle(id, key.clone());
        Ok(id)
    }

    /// The id of `key`, unless it has none or it was released.
    pub fn id(&self, key: &K) -> Option<u32> {
        let id = *self.by_key.get(key)?;
        self.by_id
            .get(&id)
            .filter(|holder| holder.released.is_none())
            .map(|_| id)
    }

    /// The id of `key`, also when it is in quarantine.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// The key of `id`, also when it is in quarantine: what a flow that holds it is about.
    pub fn key(&self, id: u32) -> Option<&K> {
        self.by_id.get(&id)?.key.as_ref()
    }

    /// Puts the key's id in quarantine. Only when no table names it any more: the kernel makes
    /// flows of what tables name. Returns the id, or None if the key had none in use.
    pub fn release(&mut self, key: &K, now: Duration) -> Option<u32> {
        let id = self.id(key)?;
        self.by_id.get_mut(&id)?.released = Some(now);
        self.quarantined += 1;
        Some(id)
    }

    /// Ends the quarantine of every id whose grace was over when a sweep began and that is not
    /// among `held`, all ids found by that sweep. Returns those that became free. The sweep must
    /// look at what turns into something else before it looks at what it turns into: handshakes,
    /// then flows.
    pub fn reclaim(&mut self, held: &BTreeSet<u32>, sweep_began: Duration) -> Vec<u32> {
        let due = |holder: &Holder<K>| {
            holder
                .released
                .is_some_and(|at| at.saturating_add(self.grace) <= sweep_began)
        };
        let free: Vec<u32> = self
            .by_id
            .iter()
            .filter(|(id, holder)| due(holder) && !held.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in &free {
            if let Some(Holder { key: Some(key), .. }) = self.by_id.remove(id) {
                self.by_key.remove(&key);
            }
        }
        self.quarantined -= free.len();
        free
    }

    /// Takes note of a key that has its id already, as found after a restart.
    pub fn adopt(&mut self, key: &K, id: u32) -> Result<(), IdError> {
        self.check_range(id)?;
        let key_elsewhere = self.by_key.get(key).is_some_and(|&other| other != id);
        let id_elsewhere = self.key(id).is_some_and(|other| other != key);
        if key_elsewhere || id_elsewhere {
            return Err(IdError::InUse { id });
        }
        self.settle(id, key.clone());
        self.cursor = self.cursor.max(id + 1);
        Ok(())
    }

    /// Takes note of an id that flows hold after a restart. It is in quarantine from `now` on,
    /// unless it is known already.
    pub fn adopt_held(&mut self, id: u32, now: Duration) -> Result<(), IdError> {
        self.check_range(id)?;
        if let Entry::Vacant(place) = self.by_id.entry(id) {
            place.insert(Holder {
                key: None,
                released: Some(now),
            });
            self.quarantined += 1;
            self.cursor = self.cursor.max(id + 1);
        }
        Ok(())
    }

    /// Keys in use with their ids, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, u32)> {
        let in_use = |id: &u32| self.by_id.get(id).is_some_and(|h| h.released.is_none());
        self.by_key
            .iter()
            .filter(move |(_, id)| in_use(id))
            .map(|(key, id)| (key, *id))
    }

    /// Number of ids in use.
    pub fn len(&self) -> usize {
        self.by_id.len() - self.quarantined
    }

    /// True when no id is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of ids in quarantine.
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Makes `id` one in use, and the key's.
    fn settle(&mut self, id: u32, key: K) {
        self.by_key.insert(key.clone(), id);
        let before = self.by_id.insert(
            id,
            Holder {
                key: Some(key),
                released: None,
            },
        );
        if before.is_some_and(|holder| holder.released.is_some()) {
            self.quarantined -= 1;
        }
    }

    /// The first free id from the cursor on, around the end of the range.
    fn next_free(&self) -> Result<u32, IdError> {
        self.gap(self.cursor.min(self.range.end)..self.range.end)
            .or_else(|| self.gap(self.range.clone()))
            .ok_or(IdError::Exhausted {
                total: self.range.len(),
                quarantined: self.quarantined,
            })
    }

    fn gap(&self, range: Range<u32>) -> Option<u32> {
        let mut free = range.start;
        for taken in self.by_id.range(range.clone()).map(|(id, _)| *id) {
            if taken != free {
                break;
            }
            free += 1;
        }
        range.contains(&free).then_some(free)
    }

    fn check_range(&self, id: u32) -> Result<(), IdError> {
        if self.range.contains(&id) {
            Ok(())
        } else {
            Err(IdError::OutOfRange { id })
        }
    }
}

#[cfg(test)]
mod tests;
