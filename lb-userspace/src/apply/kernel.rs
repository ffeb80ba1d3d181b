//! The maps in the kernel.

use std::io;

use aya::maps::MapError;
use aya::maps::lpm_trie::Key;
use lb_common::V4;
use lb_common::abi::{self, DrainKey, DrainValue, Health, SourceRange, State, TableElement};

use super::{Contents, DrainMap, MapStore, StoreError};
use crate::load::Maps;
use crate::plan::MapOp;

/// Bits of a source range's key before the client's.
const FRONTEND_BITS: u32 = 32;

/// Writes to, and reads from, the maps that a [`crate::load::Datapath`] holds.
pub struct KernelStore<'a> {
    maps: &'a mut Maps,
}

impl<'a> KernelStore<'a> {
    /// A store over these maps.
    pub fn new(maps: &'a mut Maps) -> Self {
        Self { maps }
    }
}

impl MapStore for KernelStore<'_> {
    fn apply(&mut self, op: &MapOp) -> Result<(), StoreError> {
        let maps = &mut *self.maps;
        match op {
            MapOp::PutConfig(config) => maps.config.set(0, *config, 0).map_err(error("config")),
            MapOp::PutBits { element, value, .. } => maps
                .dest_bitmap
                .set(*element, *value, 0)
                .map_err(error("dest_bitmap")),
            MapOp::PutEndpoint {
                id, value, fresh, ..
            } => {
                if *fresh {
                    // What the data plane learned about the last owner of this id.
                    maps.health
                        .set(*id, Health::default(), 0)
                        .map_err(error("health"))?;
                }
                maps.endpoints
                    .set(*id, *value, 0)
                    .map_err(error("endpoints"))
            }
            MapOp::PutTable {
                first, elements, ..
            } => maps
                .tables
                .write(*first, elements)
                .map_err(|source| StoreError::Kernel {
                    map: "tables",
                    source,
                }),
            MapOp::PutFrontend { key, value, .. } => maps
                .frontends
                .insert(key, *value, 0)
                .map_err(error("frontends")),
            MapOp::DeleteFrontend { key, .. } => {
                gone(maps.frontends.remove(key)).map_err(error("frontends"))
            }
            MapOp::PutRange { frontend, range } => maps
                .source_ranges
                .insert(&range_key(*frontend, *range), 1, 0)
                .map_err(error("source_ranges")),
            MapOp::DeleteRange { frontend, range } => {
                gone(maps.source_ranges.remove(&range_key(*frontend, *range)))
                    .map_err(error("source_ranges"))
            }
            MapOp::PutVip { address, value } => {
                maps.vips.insert(address, *value, 0).map_err(error("vips"))
            }
            MapOp::DeleteVip { address } => gone(maps.vips.remove(address)).map_err(error("vips")),
        }
    }

    fn contents(&self) -> Result<Contents, StoreError> {
        let maps = &*self.maps;
        let mut contents = Contents {
            config: maps.config.get(&0, 0).map_err(error("config"))?,
            ..Contents::default()
        };
        for entry in &maps.frontends {
            contents.frontends.push(entry.map_err(error("frontends"))?);
        }
        for entry in &maps.vips {
            contents.vips.push(entry.map_err(error("vips"))?);
        }
        for entry in maps.source_ranges.keys() {
            let key = entry.map_err(error("source_ranges"))?;
            let length = key.prefix_len().saturating_sub(FRONTEND_BITS) as u8;
            contents.ranges.push((length, key.data()));
        }
        let endpoints = maps.all_endpoints();
        let map = "endpoints";
        let endpoints = endpoints.map_err(|source| StoreError::Kernel { map, source })?;
        let used = |value: &abi::Endpoint<V4>| State::from_u8(value.state) != State::Unused;
        contents.endpoints = (0u32..)
            .zip(endpoints)
            .filter(|(_, endpoint)| used(endpoint))
            .collect();
        for element in maps.dest_bitmap.iter() {
            contents.bitmap.push(element.map_err(error("dest_bitmap"))?);
        }
        Ok(contents)
    }

    fn table(&self, first: u32, elements: u32) -> Result<Vec<TableElement>, StoreError> {
        let map = "tables";
        self.maps.tables.read(first, elements).map_err(|source| {
            if source.raw_os_error() == Some(libc::E2BIG) {
                StoreError::OutOfRange {
                    map,
                    index: first.saturating_add(elements),
                }
            } else {
                StoreError::Kernel { map, source }
            }
        })
    }
}

impl DrainMap for KernelStore<'_> {
    fn put(&mut self, key: &DrainKey<V4>, value: &DrainValue) -> Result<(), StoreError> {
        let drains = &mut self.maps.drains;
        drains.insert(key, *value, 0).map_err(error("drains"))
    }

    fn remove(&mut self, key: &DrainKey<V4>) -> Result<(), StoreError> {
        gone(self.maps.drains.remove(key)).map_err(error("drains"))
    }
}

/// What map `drains` holds.
pub fn drain_entries(maps: &Maps) -> Result<Vec<(DrainKey<V4>, DrainValue)>, StoreError> {
    maps.drains
        .iter()
        .map(|entry| entry.map_err(error("drains")))
        .collect()
}

fn range_key(frontend: u32, range: ipnet::Ipv4Net) -> Key<SourceRange<V4>> {
    let length = FRONTEND_BITS + u32::from(range.prefix_len());
    Key::new(
        length,
        SourceRange {
            frontend,
            client: V4::from(range.network()),
        },
    )
}

/// What is not there is as good as removed.
fn gone(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn error(map: &'static str) -> impl FnOnce(MapError) -> StoreError {
    move |error| {
        if let MapError::OutOfBounds { index, .. } = error {
            return StoreError::OutOfRange { map, index };
        }
        let source = if let MapError::SyscallError(error) = error {
            error.io_error
        } else {
            io::Error::other(error.to_string())
        };
        match source.raw_os_error() {
            Some(libc::E2BIG | libc::ENOSPC) => StoreError::Full { map },
            _ => StoreError::Kernel { map, source },
        }
    }
}
