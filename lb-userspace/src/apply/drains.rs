//! Keeps map `drains` in step with the drain timers: what changed is written, nothing else is.
//!
//! A deadline that is not in the map is one that the next agent does not know. When the map is
//! full, records of healthy endpoints make room for those that drain: losing the former costs a
//! restarted agent nothing but a pod's name. A write that fails is kept and tried again.

use std::collections::{BTreeMap, BTreeSet};

use lb_common::abi::{DrainKey, DrainValue};
use lb_common::{V4, limits};

use super::StoreError;
use crate::timer::drain::{DrainRecord, EndpointRef, RecordError};

/// The map, or what stands in for it.
pub trait DrainMap {
    /// Writes one entry.
    fn put(&mut self, key: &DrainKey<V4>, value: &DrainValue) -> Result<(), StoreError>;

    /// Removes one; none there is as good.
    fn remove(&mut self, key: &DrainKey<V4>) -> Result<(), StoreError>;
}

/// What map `drains` holds, and what it should but does not yet.
#[derive(Clone, Debug, Default)]
pub struct DrainBook {
    written: BTreeMap<DrainKey<V4>, DrainValue>,
    /// Those of them that may go when room is short.
    healthy: BTreeSet<DrainKey<V4>>,
    open: BTreeMap<DrainKey<V4>, Option<DrainRecord>>,
    error: Option<String>,
}

impl DrainBook {
    /// Goes on from what the map holds; returns the records too, and what is wrong with those
    /// that make no sense (they are overwritten or stay, they harm nobody).
    pub fn adopt(
        entries: impl IntoIterator<Item = (DrainKey<V4>, DrainValue)>,
    ) -> (Self, Vec<DrainRecord>, Vec<RecordError>) {
        let mut book = Self::default();
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for (key, value) in entries {
            book.written.insert(key, value);
            match DrainRecord::from_map(&key, &value) {
                Ok(record) => {
                    book.note_health(key, &record);
                    records.push(record);
                }
                Err(error) => errors.push(error),
            }
        }
        (book, records, errors)
    }

    /// Writes what changed, and what could not be written before. True when nothing is left.
    pub fn write(
        &mut self,
        changed: Vec<(EndpointRef, Option<DrainRecord>)>,
        map: &mut dyn DrainMap,
    ) -> bool {
        let keyed = changed
            .into_iter()
            // IPv6 endpoints never reach the kernel, and nothing of theirs drains there.
            .filter_map(|(endpoint, record)| Some((endpoint.to_map().ok()?, record)));
        self.open.extend(keyed);
        self.error = None;
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        // Room first, then what matters, then the rest.
        open.sort_by_key(|(_, record)| match record {
            None => 0,
            Some(record) if record.is_draining() => 1,
            Some(_) => 2,
        });
        for (key, record) in open {
            let result = match &record {
                Some(record) => self.put(key, record, map),
                None => self.remove(key, map),
            };
            if let Err(error) = result {
                self.error.get_or_insert_with(|| error.to_string());
                self.open.insert(key, record);
            }
        }
        self.open.is_empty()
    }

    /// How many records are not written, and why; none when all are.
    pub fn unwritten(&self) -> Option<(usize, &str)> {
        Some((self.open.len(), self.error.as_deref()?))
    }

    fn put(
        &mut self,
        key: DrainKey<V4>,
        record: &DrainRecord,
        map: &mut dyn DrainMap,
    ) -> Result<(), StoreError> {
        let Ok((_, value)) = record.to_map() else {
            return Ok(());
        };
        if self.written.get(&key) == Some(&value) {
            return Ok(());
        }
        if self.written.len() >= limits::DRAINS && !self.written.contains_key(&key) {
            if !record.is_draining() {
                return Ok(());
            }
            if let Some(least) = self.healthy.first().copied() {
                self.remove(least, map)?;
            }
        }
        map.put(&key, &value)?;
        self.written.insert(key, value);
        self.note_health(key, record);
        Ok(())
    }

    fn remove(&mut self, key: DrainKey<V4>, map: &mut dyn DrainMap) -> Result<(), StoreError> {
        if self.written.contains_key(&key) {
            map.remove(&key)?;
            self.written.remove(&key);
            self.healthy.remove(&key);
        }
        Ok(())
    }

    fn note_health(&mut self, key: DrainKey<V4>, record: &DrainRecord) {
        if record.is_draining() {
            self.healthy.remove(&key);
        } else {
            self.healthy.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use super::*;
    use crate::desired::{EndpointState, FrontendKey, Protocol, Via};

    /// A map that counts its writes, and refuses them while `broken`.
    #[derive(Default)]
    struct Fake {
        entries: BTreeMap<DrainKey<V4>, DrainValue>,
        writes: usize,
        broken: bool,
    }

    impl Fake {
        fn touch(&mut self) -> Result<(), StoreError> {
            self.writes += 1;
            if self.broken {
                let source = io::Error::from_raw_os_error(libc::EPERM);
                return Err(StoreError::Kernel {
                    map: "drains",
                    source,
                });
            }
            Ok(())
        }
    }

    impl DrainMap for Fake {
        fn put(&mut self, key: &DrainKey<V4>, value: &DrainValue) -> Result<(), StoreError> {
            self.touch()?;
            self.entries.insert(*key, *value);
            if self.entries.len() > limits::DRAINS {
                return Err(StoreError::Full { map: "drains" });
            }
            Ok(())
        }

        fn remove(&mut self, key: &DrainKey<V4>) -> Result<(), StoreError> {
            self.touch()?;
            self.entries.remove(key);
            Ok(())
        }
    }

    fn record(number: u32, state: EndpointState) -> (EndpointRef, Option<DrainRecord>) {
        let address = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + number), 80));
        let endpoint = EndpointRef {
            frontend: FrontendKey {
                address: IpAddr::from([192, 0, 2, 1]),
                port: 80,
                protocol: Protocol::Tcp,
            },
            address,
            incarnation: number + 1,
        };
        let mut record = DrainRecord::of_unrecorded(endpoint, Via::Local, Duration::from_secs(9));
        record.state = state;
        (endpoint, Some(record))
    }

    #[test]
    fn only_differences_are_written() {
        let (mut book, mut map) = (DrainBook::default(), Fake::default());
        let both = vec![
            record(1, EndpointState::Active),
            record(2, EndpointState::Draining),
        ];
        assert!(book.write(both.clone(), &mut map));
        assert_eq!((map.writes, map.entries.len()), (2, 2));
        assert!(book.write(both, &mut map));
        assert_eq!(map.writes, 2);
        let (endpoint, _) = record(2, EndpointState::Draining);
        assert!(book.write(vec![(endpoint, None)], &mut map));
        assert!(book.write(vec![(endpoint, None)], &mut map));
        assert_eq!((map.writes, map.entries.len()), (3, 1));
    }

    #[test]
    fn a_failed_write_is_tried_again_as_it_is_by_then() {
        let (mut book, mut map) = (DrainBook::default(), Fake::default());
        map.broken = true;
        assert!(!book.write(vec![record(1, EndpointState::Draining)], &mut map));
        let (count, error) = book.unwritten().expect("one is left");
        assert_eq!(count, 1);
        assert!(error.contains("map drains"), "{error}");
        map.broken = false;
        assert!(book.write(vec![record(1, EndpointState::Gone)], &mut map));
        assert_eq!(book.unwritten(), None);
        assert_eq!(map.entries.len(), 1);
        let states: Vec<_> = map.entries.values().map(|value| value.state).collect();
        assert_eq!(states, [lb_common::abi::DrainState::Gone as u8]);
    }

    #[test]
    fn what_drains_takes_the_room_of_what_is_well() {
        let (mut book, mut map) = (DrainBook::default(), Fake::default());
        let full = limits::DRAINS as u32;
        let healthy = (0..full + 10)
            .map(|n| record(n, EndpointState::Active))
            .collect();
        assert!(book.write(healthy, &mut map));
        assert_eq!(map.entries.len(), limits::DRAINS);
        let draining: Vec<_> = (1_000_000..1_000_000 + full)
            .map(|n| record(n, EndpointState::Draining))
            .collect();
        assert!(book.write(draining, &mut map));
        assert_eq!(map.entries.len(), limits::DRAINS);
        let draining = lb_common::abi::DrainState::Draining as u8;
        assert!(map.entries.values().all(|value| value.state == draining));
        assert!(book.write(vec![record(3, EndpointState::Active)], &mut map));
        assert!(!book.write(vec![record(4, EndpointState::Draining)], &mut map));
        let (_, error) = book.unwritten().expect("no room");
        assert!(error.contains("full"), "{error}");
    }

    #[test]
    fn the_next_agent_goes_on_from_the_map() {
        let (mut book, mut map) = (DrainBook::default(), Fake::default());
        let wanted = record(7, EndpointState::Draining);
        book.write(vec![wanted, record(8, EndpointState::Active)], &mut map);
        let (mut next, records, errors) = DrainBook::adopt(map.entries.clone());
        assert_eq!(errors, []);
        assert!(records.contains(&wanted.1.expect("a record")));
        map.writes = 0;
        assert!(next.write(vec![wanted], &mut map));
        assert_eq!(map.writes, 0);
        assert_eq!(next.healthy.len(), 1);
    }
}
