//! The pinned maps, read without the agent.
//!
//! Handles are opened for one read and closed; nothing here ever writes. What cannot be read
//! is an error that names the pin, never an empty answer: an empty answer reads as "no flows".

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::Pod;
use aya::maps::{MapData, MapError};
use lb_common::V4;
use lb_common::abi::{
    Conflict, DrainKey, DrainValue, Endpoint, Flow, FlowKey, Frontend, FrontendKey, SCHEMA, State,
    Vip,
};
use nix::time::{ClockId, clock_gettime};
use thiserror::Error;

use super::batch::{self, BatchError};
use super::counters::{CounterError, KernelCounters};
use super::state::MapFill;
use crate::timer::drain::{DrainRecord, RecordError};

/// Where pins are unless told otherwise.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/sluice";

/// A map, and how its fill level is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapName {
    /// Name of the map and of its pin.
    pub name: &'static str,
    /// How to count it.
    pub fill: Fill,
}

/// How a map's fill level is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fill {
    /// By its entries.
    Entries,
    /// By the slots of `endpoints` in use.
    Slots,
    /// Only the agent knows.
    Agent,
    /// Always full: an array of fixed meaning.
    Fixed,
}

const fn map(name: &'static str, fill: Fill) -> MapName {
    MapName { name, fill }
}

/// All pinned maps that can fill up, and the others.
pub const MAPS: &[MapName] = &[
    map("affinity", Fill::Entries),
    map("answered", Fill::Entries),
    map("config", Fill::Fixed),
    map("conflicts", Fill::Entries),
    map("counters", Fill::Fixed),
    map("dest_bitmap", Fill::Fixed),
    map("draft", Fill::Fixed),
    map("drains", Fill::Entries),
    map("endpoints", Fill::Slots),
    map("flows", Fill::Entries),
    map("frontends", Fill::Entries),
    map("handshakes", Fill::Entries),
    map("health", Fill::Fixed),
    map("refusals", Fill::Fixed),
    map("reverse", Fill::Entries),
    map("source_ranges", Fill::Entries),
    map("tables", Fill::Agent),
    map("usage", Fill::Fixed),
    map("vips", Fill::Entries),
];

/// Why pinned maps cannot be read.
#[derive(Debug, Error)]
pub enum PinError {
    /// There are no pins.
    #[error(
        "nothing is pinned in {}: no agent of this version has run here, or it used another --pin-dir",
        folder.display()
    )]
    Nothing {
        /// The folder looked at.
        folder: PathBuf,
    },
    /// The folder cannot be looked at.
    #[error("cannot look into {}: {source}; this needs root, or CAP_BPF and access to the folder", folder.display())]
    Denied {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// One map cannot be opened.
    #[error("cannot open map {map}: {source}")]
    Open {
        /// The map.
        map: &'static str,
        /// What the kernel says.
        source: MapError,
    },
    /// One map cannot be read.
    #[error("cannot read map {map}: {source}")]
    Read {
        /// The map.
        map: &'static str,
        /// What is wrong.
        source: BatchError,
    },
    /// An entry of `drains` makes no sense.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The counters.
    #[error(transparent)]
    Counters(#[from] CounterError),
}

/// The pinned maps of one agent.
#[derive(Clone, Debug)]
pub struct PinnedMaps {
    folder: PathBuf,
}

impl PinnedMaps {
    /// Looks for pins under this directory.
    pub fn open(pin_dir: &Path) -> Result<Self, PinError> {
        let folder = pin_dir.join(format!("v{SCHEMA}")).join("maps");
        match std::fs::read_dir(&folder) {
            Ok(_) => Ok(Self { folder }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(PinError::Nothing { folder })
            }
            Err(source) => Err(PinError::Denied { folder, source }),
        }
    }

    /// VIP:port combinations, by id.
    pub fn frontends(&self) -> Result<BTreeMap<u32, (FrontendKey<V4>, Frontend)>, PinError> {
        let mut found = BTreeMap::new();
        self.read("frontends", |key: &FrontendKey<V4>, value: &Frontend| {
            found.insert(value.id, (*key, *value));
        })?;
        Ok(found)
    }

    /// Endpoints in use, by id.
    pub fn endpoints(&self) -> Result<BTreeMap<u32, Endpoint<V4>>, PinError> {
        let mut found = BTreeMap::new();
        self.read("endpoints", |id: &u32, value: &Endpoint<V4>| {
            if State::from_u8(value.state) != State::Unused {
                found.insert(*id, *value);
            }
        })?;
        Ok(found)
    }

    /// Addresses answered for.
    pub fn vips(&self) -> Result<Vec<(V4, Vip)>, PinError> {
        let mut found = Vec::new();
        self.read("vips", |key: &V4, value: &Vip| found.push((*key, *value)))?;
        Ok(found)
    }

    /// Addresses that somebody else claims.
    pub fn conflicts(&self) -> Result<Vec<(V4, Conflict)>, PinError> {
        let mut found = Vec::new();
        self.read("conflicts", |key: &V4, value: &Conflict| {
            found.push((*key, *value));
        })?;
        found.sort_by_key(|(address, _)| *address);
        Ok(found)
    }

    /// What is kept of draining endpoints.
    pub fn drains(&self) -> Result<Vec<DrainRecord>, PinError> {
        let mut found = Vec::new();
        self.read("drains", |key: &DrainKey<V4>, value: &DrainValue| {
            found.push(DrainRecord::from_map(key, value));
        })?;
        Ok(found.into_iter().collect::<Result<_, _>>()?)
    }

    /// Every flow there is; a connection by full NAT comes as two.
    pub fn for_each_flow(
        &self,
        visit: impl FnMut(&FlowKey<V4>, &Flow<V4>),
    ) -> Result<(), PinError> {
        self.read("flows", visit)
    }

    /// Packets and bytes by reason.
    pub fn counters(&self) -> Result<KernelCounters, PinError> {
        Ok(KernelCounters::open(&self.folder.join("counters"))?)
    }

    /// How full the maps are that the kernel can tell of.
    pub fn fills(&self) -> Result<Vec<MapFill>, PinError> {
        let mut fills = Vec::new();
        for MapName { name, fill } in MAPS {
            let entries = match fill {
                Fill::Fixed | Fill::Agent => continue,
                Fill::Slots => self.endpoints()?.len() as u64,
                Fill::Entries if !self.folder.join(name).exists() => continue,
                Fill::Entries => batch::count(&self.map(name)?)
                    .map_err(|source| PinError::Read { map: name, source })?,
            };
            let info = self.map(name)?.info();
            let info = info.map_err(|source| PinError::Open { map: name, source })?;
            let capacity = u64::from(info.max_entries());
            fills.push(MapFill {
                map: (*name).to_owned(),
                entries,
                capacity,
            });
        }
        Ok(fills)
    }

    /// Ids of the loaded programs that use these maps, with their names. Needs more rights
    /// than reading maps does.
    pub fn programs(&self) -> Result<BTreeMap<u32, String>, PinError> {
        let counters = self.map("counters")?.info();
        let counters = counters
            .map_err(|source| PinError::Open {
                map: "counters",
                source,
            })?
            .id();
        let ours = |ids: &Vec<u32>| ids.iter().collect::<BTreeSet<_>>().contains(&counters);
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        Ok(programs
            .filter(|program| matches!(program.map_ids(), Ok(Some(ids)) if ours(&ids)))
            .map(|program| {
                (
                    program.id(),
                    program.name_as_str().unwrap_or("?").to_owned(),
                )
            })
            .collect())
    }

    fn read<K: Pod, V: Pod>(
        &self,
        name: &'static str,
        visit: impl FnMut(&K, &V),
    ) -> Result<(), PinError> {
        batch::for_each(&self.map(name)?, visit)
            .map_err(|source| PinError::Read { map: name, source })
    }

    fn map(&self, name: &'static str) -> Result<MapData, PinError> {
        MapData::from_pin(self.folder.join(name))
            .map_err(|source| PinError::Open { map: name, source })
    }
}

/// The clocks that map values are written by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Clocks {
    /// Boot clock: deadlines.
    pub boot: Duration,
    /// Monotonic clock: coarse ticks.
    pub monotonic: Duration,
}

impl Clocks {
    /// As they stand. Only for showing ages to people.
    pub fn read() -> Self {
        let read = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
        Self {
            boot: read(ClockId::CLOCK_BOOTTIME),
            monotonic: read(ClockId::CLOCK_MONOTONIC),
        }
    }

    /// Seconds since a coarse tick, by its own clock.
    pub fn since_tick(self, tick: u32) -> u64 {
        let now = self.monotonic.as_nanos() >> lb_common::limits::TICK_SHIFT;
        let ticks = u64::try_from(now)
            .unwrap_or(u64::MAX)
            .saturating_sub(u64::from(tick));
        (ticks << lb_common::limits::TICK_SHIFT) / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pins_is_said_with_the_folder() {
        let error = PinnedMaps::open(Path::new("/nowhere")).expect_err("no such folder");
        assert!(
            error
                .to_string()
                .starts_with("nothing is pinned in /nowhere/v1/maps"),
            "{error}"
        );
    }

    #[test]
    fn names_are_sorted_and_known_once() {
        assert!(MAPS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn ages_count_from_the_tick() {
        let clocks = Clocks {
            monotonic: Duration::from_secs(1000),
            ..Clocks::default()
        };
        let tick = u32::try_from((900_u64 * 1_000_000_000) >> 30).expect("small");
        assert!((99..=101).contains(&clocks.since_tick(tick)));
        assert_eq!(clocks.since_tick(u32::MAX), 0, "a tick of the future");
    }
}
