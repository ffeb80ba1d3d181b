//! What all maps weigh when they are full, by the kernel's own account.
//!
//! The product's object is loaded with its real sizes. Hash maps have all their entries from the
//! start; the longest-prefix map grows, so it is filled.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context, Result, bail};
use aya::EbpfLoader;
use aya::maps::{LpmTrie, Map, MapData, lpm_trie};
use lb_common::abi::SourceRange;
use lb_common::{V4, limits};

use super::table::{Row, Target};
use crate::{objects, run};

const MIB: f64 = 1024.0 * 1024.0;
/// For IPv4, tables included.
const BUDGET: f64 = 320.0;
/// Maps that are named in the table.
const SHOWN: usize = 4;

/// Loads, fills, adds up.
pub(super) fn measure() -> Result<Vec<Row>> {
    run::step("memory: making all maps with their real sizes");
    let path = objects::PRODUCT.path();
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut ebpf = EbpfLoader::new()
        .load(&bytes)
        .context("loading the product's object")?;
    let ranges = ebpf.map_mut("source_ranges").context("source_ranges")?;
    fill(LpmTrie::try_from(ranges)?)?;
    let mut sizes = Vec::new();
    for (name, map) in ebpf.maps() {
        let size = memory(data(map).with_context(|| name.to_owned())?)?;
        sizes.push((size, name.to_owned()));
    }
    sizes.sort_by(|a, b| b.cmp(a));
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    let largest = sizes.iter().take(SHOWN);
    let detail: Vec<String> = largest
        .map(|(size, name)| format!("{name} {:.0}", mib(*size)))
        .collect();
    Ok(vec![Row {
        what: format!("memory of {} maps when full", sizes.len()),
        measured: mib(total),
        unit: "MiB",
        target: Some(Target::AtMost(BUDGET)),
        detail: format!("{} MiB", detail.join(", ")),
    }])
}

fn fill(mut ranges: LpmTrie<&mut MapData, SourceRange<V4>, u32>) -> Result<()> {
    for index in 0..limits::SOURCE_RANGES as u32 {
        let range = SourceRange {
            frontend: index.to_be(),
            client: V4(index.wrapping_mul(0x9e37_79b1).to_be_bytes()),
        };
        ranges
            .insert(&lpm_trie::Key::new(64, range), 1, 0)
            .with_context(|| format!("source range {index}"))?;
    }
    Ok(())
}

fn data(map: &Map) -> Result<&MapData> {
    if let Map::Array(data)
    | Map::PerCpuArray(data)
    | Map::HashMap(data)
    | Map::LruHashMap(data)
    | Map::LpmTrie(data) = map
    {
        return Ok(data);
    }
    bail!("a map of a kind that this bench does not know")
}

/// What the kernel says a map takes, in bytes.
fn memory(map: &MapData) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let text = fs::read_to_string(&path).context(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    let bytes = line.context("no memlock in a map's fdinfo")?.trim();
    bytes.parse().with_context(|| format!("memlock {bytes}"))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
