//! A hash table of the host's world: values stay where they are while somebody holds a slot.

use core::cell::{Cell, RefCell};
use core::hash::Hash;
use std::collections::HashMap;
use std::rc::Rc;
use std::vec::Vec;

use crate::world::{Entry, Inserted, Slot};

/// A table with a limit, like a map of the kernel's. Nothing is evicted: a full table refuses.
#[derive(Debug)]
pub struct HostTable<K, V: Copy> {
    entries: RefCell<HashMap<K, Rc<Cell<V>>>>,
    capacity: Cell<usize>,
}

impl<K: Copy + Eq + Hash, V: Copy> HostTable<K, V> {
    /// An empty table without a limit.
    pub fn new() -> Self {
        Self {
            entries: RefCell::new(HashMap::new()),
            capacity: Cell::new(usize::MAX),
        }
    }

    /// Sets how many entries it takes.
    pub fn limit(&self, capacity: usize) {
        self.capacity.set(capacity);
    }

    /// A value's copy.
    pub fn get(&self, key: &K) -> Option<V> {
        self.entries.borrow().get(key).map(|value| value.get())
    }

    /// All entries, in no order.
    pub fn entries(&self) -> Vec<(K, V)> {
        self.entries
            .borrow()
            .iter()
            .map(|(key, value)| (*key, value.get()))
            .collect()
    }

    fn put(&self, key: &K, value: &V, replace: bool) -> Inserted {
        let mut entries = self.entries.borrow_mut();
        let full = entries.len() >= self.capacity.get();
        match entries.get(key) {
            Some(_) if !replace => Inserted::Exists,
            None if full => Inserted::Full,
            // A fresh cell: who holds the old one sees the old value, as in the kernel.
            Some(_) | None => {
                entries.insert(*key, Rc::new(Cell::new(*value)));
                Inserted::Yes
            }
        }
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Default for HostTable<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// A value in a table.
#[derive(Clone, Debug)]
pub struct HostSlot<V: Copy>(Rc<Cell<V>>);

impl<V: Copy> HostSlot<V> {
    /// A slot of its own.
    pub(super) fn alone(value: V) -> Self {
        Self(Rc::new(Cell::new(value)))
    }

    /// Replaces the value.
    pub(super) fn set(&self, value: V) {
        self.0.set(value);
    }
}

impl<V: Copy> Slot<V> for HostSlot<V> {
    fn read(&self) -> V {
        self.0.get()
    }

    fn get<R>(&self, look: impl FnOnce(&V) -> R) -> R {
        look(&self.0.get())
    }

    fn update<R>(&self, change: impl FnOnce(&mut V) -> R) -> R {
        let mut value = self.0.get();
        let result = change(&mut value);
        self.0.set(value);
        result
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Entry<K, V> for &HostTable<K, V> {
    type Slot = HostSlot<V>;

    fn find(&self, key: &K) -> Option<HostSlot<V>> {
        self.entries.borrow().get(key).cloned().map(HostSlot)
    }

    fn insert_new(&self, key: &K, value: &V) -> Inserted {
        self.put(key, value, false)
    }

    fn insert(&self, key: &K, value: &V) -> Inserted {
        self.put(key, value, true)
    }

    fn remove(&self, key: &K) {
        self.entries.borrow_mut().remove(key);
    }
}
