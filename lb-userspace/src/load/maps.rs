//! The pinned maps: their shapes, and typed handles resolved once.
//!
//! A pinned map of another shape (a changed limit, another build) cannot be used by these
//! programs. It is made anew, and what it held is lost: that is always said, never done silently.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::Ebpf;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{Array, HashMap, MapData, MapError, MapInfo, MapType, PerCpuArray};
use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Conflict, Counter, DrainKey, DrainValue, Endpoint,
    Flow, FlowKey, Frontend, FrontendKey, Handshake, Health, Reverse, SourceRange, TableElement,
    Vip,
};
use lb_common::{Reason, V4, limits};

use crate::plan::BITMAP_WORDS;

use super::mapping::Mapping;
use super::{LoadError, Pins, TableMap, sys};

/// Refusals in one coarse tick: the tick, and how many.
pub type Refusals = [u32; 2];

/// Kind of a map, as far as shapes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapKind {
    /// Array.
    Array,
    /// Array with a value per CPU.
    PerCpuArray,
    /// Hash.
    Hash,
    /// Hash that forgets the oldest entries.
    LruHash,
    /// Longest prefix match.
    LpmTrie,
}

impl MapKind {
    fn of(info: &MapInfo) -> Option<Self> {
        match info.map_type() {
            Ok(MapType::Array) => Some(Self::Array),
            Ok(MapType::PerCpuArray) => Some(Self::PerCpuArray),
            Ok(MapType::Hash) => Some(Self::Hash),
            Ok(MapType::LruHash) => Some(Self::LruHash),
            Ok(MapType::LpmTrie) => Some(Self::LpmTrie),
            _ => None,
        }
    }
}

/// What a map must be to be ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapShape {
    /// Name, also of the pin.
    pub name: &'static str,
    /// Kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Entries.
    pub entries: u32,
}

const fn shape<K, V>(name: &'static str, kind: MapKind, entries: usize) -> MapShape {
    let (key, value) = (size_of::<K>() as u32, size_of::<V>() as u32);
    MapShape {
        name,
        kind,
        key,
        value,
        entries: entries as u32,
    }
}

/// Bytes in front of the data in the key of a longest-prefix map.
type LpmKey = (u32, SourceRange<V4>);

/// Every pinned map.
pub const MAPS: &[MapShape] = &[
    shape::<u32, Config<V4>>("config", MapKind::Array, 1),
    shape::<u32, u64>("dest_bitmap", MapKind::Array, BITMAP_WORDS),
    shape::<V4, Vip>("vips", MapKind::Hash, limits::VIPS),
    shape::<FrontendKey<V4>, Frontend>("frontends", MapKind::Hash, limits::FRONTENDS),
    shape::<u32, Endpoint<V4>>("endpoints", MapKind::Array, limits::ENDPOINTS),
    shape::<u32, Health>("health", MapKind::Array, limits::ENDPOINTS),
    shape::<u32, TableElement>("tables", MapKind::Array, limits::TABLE_ELEMENTS),
    shape::<FlowKey<V4>, Flow<V4>>("flows", MapKind::Hash, limits::FLOWS),
    shape::<FlowKey<V4>, Reverse<V4>>("reverse", MapKind::Hash, limits::REVERSE),
    shape::<FlowKey<V4>, Handshake<V4>>("handshakes", MapKind::LruHash, limits::HANDSHAKES),
    shape::<FlowKey<V4>, Answered>("answered", MapKind::LruHash, limits::ANSWERED),
    shape::<AffinityKey<V4>, Affinity>("affinity", MapKind::LruHash, limits::AFFINITY),
    shape::<LpmKey, u32>("source_ranges", MapKind::LpmTrie, limits::SOURCE_RANGES),
    shape::<V4, Conflict>("conflicts", MapKind::LruHash, limits::CONFLICTS),
    shape::<DrainKey<V4>, DrainValue>("drains", MapKind::Hash, limits::DRAINS),
    shape::<u32, Refusals>("refusals", MapKind::Array, 1),
    shape::<u32, u64>("usage", MapKind::Array, limits::ENDPOINTS),
    shape::<u32, Counter>("counters", MapKind::PerCpuArray, Reason::COUNT),
];

/// Maps of the object that are a program's own affair and are not shared.
pub(super) const PRIVATE: &[&str] = &["draft", ".rodata", ".bss", ".data"];

/// A pinned map that did not fit and was made anew.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rebuilt {
    /// The map.
    pub map: &'static str,
    /// What it was: bytes of key and value, and entries.
    pub was: (u32, u32, u32),
    /// What it is.
    pub is: (u32, u32, u32),
}

impl fmt::Display for Rebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value, entries) = self.was;
        let (new_key, new_value, new_entries) = self.is;
        write!(
            f,
            "pinned map {} had {entries} entries of {key} + {value} bytes, these programs need \
             {new_entries} of {new_key} + {new_value}: it is made anew, its contents are lost",
            self.map
        )
    }
}

/// Unpins maps that these programs cannot use.
pub(super) fn drop_misfits(pins: &Pins) -> Result<Vec<Rebuilt>, LoadError> {
    let mut rebuilt = Vec::new();
    for shape in MAPS {
        let path = pins.map(shape.name);
        if !path.exists() {
            continue;
        }
        let info = MapInfo::from_pin(&path).map_err(map_error(shape.name))?;
        let was = (info.key_size(), info.value_size(), info.max_entries());
        let is = (shape.key, shape.value, shape.entries);
        if was == is && MapKind::of(&info) == Some(shape.kind) {
            continue;
        }
        std::fs::remove_file(&path).map_err(LoadError::io(&path))?;
        let misfit = Rebuilt {
            map: shape.name,
            was,
            is,
        };
        tracing::warn!("{misfit}");
        rebuilt.push(misfit);
    }
    Ok(rebuilt)
}

/// The object must have no map that would silently be one per program.
pub(super) fn check_known(ebpf: &Ebpf) -> Result<(), LoadError> {
    let known = |name: &str| {
        MAPS.iter().any(|shape| shape.name == name)
            || PRIVATE.iter().any(|private| name.starts_with(private))
    };
    match ebpf.maps().find(|(name, _)| !known(name)) {
        Some((name, _)) => Err(LoadError::UnknownMap {
            name: name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Typed handles of all pinned maps; `docs/maps.md` says what each holds.
#[expect(missing_docs, reason = "the names are those of the maps")]
pub struct Maps {
    pub config: Array<MapData, Config<V4>>,
    pub dest_bitmap: Array<MapData, u64>,
    pub vips: HashMap<MapData, V4, Vip>,
    pub frontends: HashMap<MapData, FrontendKey<V4>, Frontend>,
    pub endpoints: Array<MapData, Endpoint<V4>>,
    pub health: Array<MapData, Health>,
    pub tables: TableMap,
    pub flows: HashMap<MapData, FlowKey<V4>, Flow<V4>>,
    pub reverse: HashMap<MapData, FlowKey<V4>, Reverse<V4>>,
    pub handshakes: HashMap<MapData, FlowKey<V4>, Handshake<V4>>,
    pub answered: HashMap<MapData, FlowKey<V4>, Answered>,
    pub affinity: HashMap<MapData, AffinityKey<V4>, Affinity>,
    pub source_ranges: LpmTrie<MapData, SourceRange<V4>, u32>,
    pub conflicts: HashMap<MapData, V4, Conflict>,
    pub drains: HashMap<MapData, DrainKey<V4>, DrainValue>,
    pub refusals: Array<MapData, Refusals>,
    pub counters: PerCpuArray<MapData, Counter>,
    ids: Vec<(&'static str, u32)>,
    /// For reading all of `endpoints` at once.
    endpoints_fd: OwnedFd,
    usage_fd: OwnedFd,
}

impl Maps {
    /// Takes the maps out of a loaded object.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        let mut ids = Vec::with_capacity(MAPS.len());
        for shape in MAPS {
            let map = ebpf.map(shape.name).ok_or(missing(shape.name))?;
            let (aya::maps::Map::Array(data)
            | aya::maps::Map::PerCpuArray(data)
            | aya::maps::Map::HashMap(data)
            | aya::maps::Map::LruHashMap(data)
            | aya::maps::Map::LpmTrie(data)) = map
            else {
                return Err(missing(shape.name));
            };
            ids.push((shape.name, data.info().map_err(map_error(shape.name))?.id()));
        }
        let endpoints_fd = duplicate(ebpf, "endpoints")?;
        Ok(Self {
            config: typed(ebpf, "config")?,
            dest_bitmap: typed(ebpf, "dest_bitmap")?,
            vips: typed(ebpf, "vips")?,
            frontends: typed(ebpf, "frontends")?,
            endpoints: typed(ebpf, "endpoints")?,
            health: typed(ebpf, "health")?,
            tables: TableMap::new(data(ebpf, "tables")?),
            flows: typed(ebpf, "flows")?,
            reverse: typed(ebpf, "reverse")?,
            handshakes: typed(ebpf, "handshakes")?,
            answered: typed(ebpf, "answered")?,
            affinity: typed(ebpf, "affinity")?,
            source_ranges: typed(ebpf, "source_ranges")?,
            conflicts: typed(ebpf, "conflicts")?,
            drains: typed(ebpf, "drains")?,
            refusals: typed(ebpf, "refusals")?,
            usage_fd: duplicate(ebpf, "usage")?,
            counters: typed(ebpf, "counters")?,
            ids,
            endpoints_fd,
        })
    }

    /// All slots of `endpoints`, by id.
    pub fn all_endpoints(&self) -> io::Result<Vec<Endpoint<V4>>> {
        sys::read_array(self.endpoints_fd.as_fd(), limits::ENDPOINTS)
    }

    /// Flows of each endpoint, by id, as the last sweep counted them.
    pub fn usage(&self) -> io::Result<Vec<u64>> {
        Ok(self.map_usage()?.read())
    }

    pub(super) fn clear_usage(&self) -> io::Result<()> {
        self.map_usage()?.clear();
        Ok(())
    }

    fn map_usage(&self) -> io::Result<Mapping<u64>> {
        Mapping::new(self.usage_fd.as_fd(), 0, limits::ENDPOINTS)
    }

    /// The kernel's ids of the maps held.
    pub fn ids(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.ids.iter().copied()
    }

    /// Checks that the pins are still the maps held.
    pub(super) fn verify_pins(&self, pins: &Pins) -> Result<(), LoadError> {
        for (map, held) in self.ids() {
            let pinned = MapInfo::from_pin(pins.map(map)).map_or(0, |info| info.id());
            if pinned != held {
                return Err(LoadError::MapReplaced { map, pinned, held });
            }
        }
        Ok(())
    }

    /// Those of a program's maps that are not held; a program has at least its constants as such.
    pub(super) fn strangers(&self, program: &[u32]) -> BTreeSet<u32> {
        let held: BTreeSet<u32> = self.ids.iter().map(|(_, id)| *id).collect();
        program
            .iter()
            .copied()
            .filter(|id| !held.contains(id))
            .collect()
    }
}

fn typed<T>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, LoadError>
where
    T: TryFrom<aya::maps::Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or(missing(name))?;
    T::try_from(map).map_err(map_error(name))
}

/// Another handle of a pinned map.
pub(super) fn reopen(pins: &Pins, name: &'static str) -> Result<MapData, LoadError> {
    MapData::from_pin(pins.map(name)).map_err(map_error(name))
}

fn duplicate(ebpf: &Ebpf, name: &'static str) -> Result<OwnedFd, LoadError> {
    let Some(aya::maps::Map::Array(data)) = ebpf.map(name) else {
        return Err(missing(name));
    };
    data.fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(LoadError::io(name))
}

fn data(ebpf: &mut Ebpf, name: &'static str) -> Result<MapData, LoadError> {
    match ebpf.take_map(name) {
        Some(aya::maps::Map::Array(data)) => Ok(data),
        _ => Err(missing(name)),
    }
}

fn missing(name: &'static str) -> LoadError {
    LoadError::Missing { what: "map", name }
}

fn map_error(map: &'static str) -> impl FnOnce(MapError) -> LoadError {
    move |source| LoadError::Map {
        map,
        source: Box::new(source),
    }
}
