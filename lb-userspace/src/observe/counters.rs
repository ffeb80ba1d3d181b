//! Packets and bytes by reason, summed over CPUs.

use std::fmt;
use std::path::Path;

use aya::maps::{MapData, MapError, PerCpuArray};
use lb_common::Reason;
use lb_common::abi::Counter;
use thiserror::Error;

/// Why counters cannot be read.
#[derive(Debug, Error)]
pub enum CounterError {
    /// The map is not there, or not ours to read.
    #[error("cannot open the counters at {path}: {source}")]
    Open {
        /// The pin.
        path: String,
        /// What the kernel says.
        source: MapError,
    },
    /// A slot could not be read.
    #[error("cannot read the counter of {reason}: {source}")]
    Read {
        /// Whose.
        reason: &'static str,
        /// What the kernel says.
        source: MapError,
    },
}

/// Where counters come from: the kernel, or a test.
pub trait CounterSource: fmt::Debug + Send + Sync + 'static {
    /// One sum per reason, in the order of [`Reason::ALL`].
    fn read(&self) -> Result<Vec<Counter>, CounterError>;
}

/// The pinned per-CPU array.
pub struct KernelCounters {
    map: PerCpuArray<MapData, Counter>,
}

impl fmt::Debug for KernelCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelCounters").finish_non_exhaustive()
    }
}

impl KernelCounters {
    /// Opens the pin.
    pub fn open(path: &Path) -> Result<Self, CounterError> {
        let failed = |source| CounterError::Open {
            path: path.display().to_string(),
            source,
        };
        let data = MapData::from_pin(path).map_err(failed)?;
        let map = aya::maps::Map::from_map_data(data).map_err(failed)?;
        Ok(Self {
            map: PerCpuArray::try_from(map).map_err(failed)?,
        })
    }
}

impl CounterSource for KernelCounters {
    fn read(&self) -> Result<Vec<Counter>, CounterError> {
        let slots = self.map.len();
        let sum = |reason: &Reason| {
            let index = *reason as u32;
            if index >= slots {
                // A program of before this reason existed.
                return Ok(Counter::default());
            }
            let per_cpu = self
                .map
                .get(&index, 0)
                .map_err(|source| CounterError::Read {
                    reason: reason.as_str(),
                    source,
                })?;
            Ok(per_cpu.iter().fold(Counter::default(), add))
        };
        Reason::ALL.iter().map(sum).collect()
    }
}

fn add(sum: Counter, one: &Counter) -> Counter {
    Counter {
        packets: sum.packets.wrapping_add(one.packets),
        bytes: sum.bytes.wrapping_add(one.bytes),
    }
}
