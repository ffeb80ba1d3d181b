//! The maps in memory, with faults on demand, and the data plane's view of them.
//!
//! [`FakeStore::new_connections`] walks the maps as the XDP program does, so a test can ask after
//! every single write where a client's next connection may go.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;
use lb_common::abi::{self, Config, State, TableElement, verdict};
use lb_common::bitmap::bitmap_index;
use lb_common::select::Layout;
use lb_common::select::layout::Slot;
use lb_common::{V4, limits};

use super::{Contents, MapStore, StoreError};
use crate::plan::{BITMAP_WORDS, MapOp};

/// Maps in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeStore {
    config: Config<V4>,
    frontends: BTreeMap<abi::FrontendKey<V4>, abi::Frontend>,
    endpoints: BTreeMap<u32, abi::Endpoint<V4>>,
    vips: BTreeMap<V4, abi::Vip>,
    ranges: BTreeSet<(u32, Ipv4Net)>,
    bitmap: Vec<u64>,
    tables: BTreeMap<u32, TableElement>,
    /// Who is in the rows of a region: reading all rows after each write is slow.
    choices: RefCell<BTreeMap<(u32, u16, u8), BTreeSet<u32>>>,
    /// Writes tried so far.
    pub writes: u64,
    /// Writes (counted from 0 over the store's life) that fail.
    pub fail_at: BTreeSet<u64>,
    /// Entries that `frontends` holds at most.
    pub frontend_limit: usize,
}

impl Default for FakeStore {
    fn default() -> Self {
        Self {
            config: Config::EMPTY,
            frontends: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            vips: BTreeMap::new(),
            ranges: BTreeSet::new(),
            bitmap: vec![0; BITMAP_WORDS],
            tables: BTreeMap::new(),
            choices: RefCell::default(),
            writes: 0,
            fail_at: BTreeSet::new(),
            frontend_limit: limits::FRONTENDS,
        }
    }
}

/// What a new connection meets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The address is not ours: to the node's own stack.
    NotOurs,
    /// No Service on this port: refused.
    NoService,
    /// Silence.
    Drop,
    /// Refused: no endpoint.
    Reject,
    /// To one of these, by row; each with what a refused connection is offered next.
    Forward(BTreeSet<SocketAddrV4>),
}

impl FakeStore {
    /// Makes the writes with these numbers, from the next one on, fail.
    pub fn fail_next(&mut self, numbers: impl IntoIterator<Item = u64>) {
        let base = self.writes;
        self.fail_at
            .extend(numbers.into_iter().map(|number| base + number));
    }

    /// The settings.
    pub fn config(&self) -> Config<V4> {
        self.config
    }

    /// Number of frontends.
    pub fn frontend_count(&self) -> usize {
        self.frontends.len()
    }

    /// A frontend.
    pub fn frontend(&self, key: &abi::FrontendKey<V4>) -> Option<abi::Frontend> {
        self.frontends.get(key).copied()
    }

    /// An endpoint slot in use.
    pub fn endpoint(&self, id: u32) -> Option<abi::Endpoint<V4>> {
        self.endpoints.get(&id).copied()
    }

    /// The slots in use under this address, of any frontend.
    pub fn endpoints_at(&self, address: SocketAddrV4) -> Vec<(u32, abi::Endpoint<V4>)> {
        let here = |value: &abi::Endpoint<V4>| {
            value.address == V4::from(*address.ip()) && value.port == address.port()
        };
        self.endpoints
            .iter()
            .filter(|(_, value)| here(value))
            .map(|(id, v)| (*id, *v))
            .collect()
    }

    /// True when the address passes the bitmap.
    pub fn bit(&self, address: Ipv4Addr) -> bool {
        let bit = bitmap_index(V4::from(address));
        self.bitmap
            .get((bit >> 6) as usize)
            .is_some_and(|bits| bits >> (bit & 63) & 1 == 1)
    }

    /// True when this node answers for the address.
    pub fn answers(&self, address: Ipv4Addr) -> bool {
        self.vips
            .get(&address.into())
            .is_some_and(|vip| vip.answer_until > 0)
    }

    /// True when a client may use the frontend.
    pub fn source_allowed(&self, key: &abi::FrontendKey<V4>, client: Ipv4Addr) -> bool {
        self.frontends.get(key).is_some_and(|frontend| {
            frontend.source_ranges == 0
                || self
                    .ranges
                    .iter()
                    .any(|(id, range)| *id == frontend.id && range.contains(&client))
        })
    }

    /// What a new connection meets: all that any row, primary or secondary, can give it.
    pub fn new_connections(&self, key: &abi::FrontendKey<V4>) -> Fate {
        if !self.bit(key.address.into()) || !self.vips.contains_key(&key.address) {
            return Fate::NotOurs;
        }
        let Some(frontend) = self.frontends.get(key) else {
            return Fate::NoService;
        };
        match frontend.verdict {
            verdict::DROP => return Fate::Drop,
            verdict::REJECT => return Fate::Reject,
            _ => {}
        }
        let usable: BTreeSet<_> = self
            .choices(frontend)
            .into_iter()
            .filter_map(|id| self.endpoints.get(&id))
            .filter(|endpoint| endpoint.state == State::Active as u8)
            .map(|endpoint| SocketAddrV4::new(endpoint.address.into(), endpoint.port))
            .collect();
        if usable.is_empty() {
            Fate::Reject
        } else {
            Fate::Forward(usable)
        }
    }

    /// Checks that everything named exists and belongs together.
    pub fn check(&self) -> Result<(), String> {
        for (key, frontend) in &self.frontends {
            if frontend.verdict == verdict::FORWARD && frontend.members == 0 {
                return Err(format!("{key:?} forwards to nobody"));
            }
            let layout = Layout::new(frontend.members, frontend.rows_log2);
            for element in frontend.region..frontend.region + layout.elements() {
                if !self.tables.contains_key(&element) {
                    return Err(format!("{key:?} uses element {element}, never written"));
                }
            }
            for id in self.choices(frontend) {
                let Some(endpoint) = self.endpoints.get(&id) else {
                    return Err(format!("{key:?} names endpoint {id}, which is unused"));
                };
                if endpoint.frontend != frontend.id {
                    return Err(format!("{key:?} names endpoint {id} of another frontend"));
                }
            }
        }
        Ok(())
    }

    fn choices(&self, frontend: &abi::Frontend) -> BTreeSet<u32> {
        let layout = Layout::new(frontend.members, frontend.rows_log2);
        if frontend.members == 0 {
            return BTreeSet::new();
        }
        let shape = (frontend.region, frontend.members, frontend.rows_log2);
        if let Some(ids) = self.choices.borrow().get(&shape) {
            return ids.clone();
        }
        let mut ids = BTreeSet::new();
        for row in 0..layout.rows() {
            let at = layout.row_at(frontend.region, row);
            let choice = layout.unpack(self.word(at.slot), at.shift);
            for member in std::iter::once(choice.primary).chain(choice.secondary) {
                ids.insert(self.word(layout.member_at(frontend.region, member)));
            }
        }
        self.choices.borrow_mut().insert(shape, ids.clone());
        ids
    }

    fn word(&self, slot: Slot) -> u32 {
        let element = self.tables.get(&slot.element);
        element
            .and_then(|words| words.get(slot.lane))
            .copied()
            .unwrap_or_default()
    }
}

impl MapStore for FakeStore {
    fn apply(&mut self, op: &MapOp) -> Result<(), StoreError> {
        let number = self.writes;
        self.writes += 1;
        if self.fail_at.contains(&number) {
            let source = io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(StoreError::Kernel {
                map: "injected",
                source,
            });
        }
        match op {
            MapOp::PutConfig(config) => self.config = *config,
            MapOp::PutBits { element, value, .. } => {
                let slot = self.bitmap.get_mut(*element as usize);
                let map = "dest_bitmap";
                *slot.ok_or(StoreError::OutOfRange {
                    map,
                    index: *element,
                })? = *value;
            }
            MapOp::PutEndpoint { id, value, .. } => {
                if *id == 0 || *id as usize >= limits::ENDPOINTS {
                    return Err(StoreError::OutOfRange {
                        map: "endpoints",
                        index: *id,
                    });
                }
                if value.state == State::Unused as u8 {
                    self.endpoints.remove(id);
                } else {
                    self.endpoints.insert(*id, *value);
                }
            }
            MapOp::PutTable {
                first, elements, ..
            } => {
                let end = *first as usize + elements.len();
                if end > limits::TABLE_ELEMENTS {
                    return Err(StoreError::OutOfRange {
                        map: "tables",
                        index: end as u32,
                    });
                }
                self.choices.borrow_mut().clear();
                self.tables.extend((*first..).zip(elements.iter().copied()));
            }
            MapOp::PutFrontend { key, value, .. } => {
                let new = !self.frontends.contains_key(key);
                if new && self.frontends.len() >= self.frontend_limit {
                    return Err(StoreError::Full { map: "frontends" });
                }
                self.frontends.insert(*key, *value);
            }
            MapOp::DeleteFrontend { key, .. } => {
                self.frontends.remove(key);
            }
            MapOp::PutRange { frontend, range } => {
                self.ranges.insert((*frontend, *range));
            }
            MapOp::DeleteRange { frontend, range } => {
                self.ranges.remove(&(*frontend, *range));
            }
            MapOp::PutVip { address, value } => {
                self.vips.insert(*address, *value);
            }
            MapOp::DeleteVip { address } => {
                self.vips.remove(address);
            }
        }
        Ok(())
    }

    fn contents(&self) -> Result<Contents, StoreError> {
        let range = |(frontend, net): &(u32, Ipv4Net)| {
            let client = V4::from(net.network());
            (
                net.prefix_len(),
                abi::SourceRange {
                    frontend: *frontend,
                    client,
                },
            )
        };
        Ok(Contents {
            config: self.config,
            frontends: self
                .frontends
                .iter()
                .map(|(key, value)| (*key, *value))
                .collect(),
            endpoints: self
                .endpoints
                .iter()
                .map(|(id, value)| (*id, *value))
                .collect(),
            vips: self
                .vips
                .iter()
                .map(|(address, vip)| (*address, *vip))
                .collect(),
            ranges: self.ranges.iter().map(range).collect(),
            bitmap: self.bitmap.clone(),
        })
    }

    fn table(&self, first: u32, elements: u32) -> Result<Vec<TableElement>, StoreError> {
        let end = first.saturating_add(elements);
        if end as usize > limits::TABLE_ELEMENTS {
            return Err(StoreError::OutOfRange {
                map: "tables",
                index: end,
            });
        }
        let element = |at| self.tables.get(&at).copied().unwrap_or_default();
        Ok((first..end).map(element).collect())
    }
}
