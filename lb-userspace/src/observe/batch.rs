//! Reading whole maps, many entries per system call (BPF_MAP_LOOKUP_BATCH, Linux 5.6).
//!
//! Going from key to key costs two calls per entry and starts over when the last key vanished,
//! which in a busy flow table may never end. Batches walk the buckets instead: an entry may be
//! missed or new, none comes twice. Read-only, and the only file here that talks to the
//! kernel without aya.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use aya::Pod;
use aya::maps::{MapData, MapError};
use thiserror::Error;

/// Why a map cannot be read.
#[derive(Debug, Error)]
pub enum BatchError {
    /// The map's keys or values have another size.
    #[error(
        "keys of {keys} and values of {values} bytes, expected {expected_keys} and {expected_values}: another version's map"
    )]
    Layout {
        /// Of the map.
        keys: usize,
        /// Of the map.
        values: usize,
        /// Of the reader.
        expected_keys: usize,
        /// Of the reader.
        expected_values: usize,
    },
    /// The map's description could not be read.
    #[error(transparent)]
    Info(#[from] MapError),
    /// The kernel refused.
    #[error("BPF_MAP_LOOKUP_BATCH: {0}")]
    Lookup(#[source] io::Error),
}

/// First batch; doubled when a hash bucket holds more.
const ENTRIES: usize = 4096;
/// Room for the kernel's place mark: a bucket number or a key.
const MARK: usize = 64;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;

/// `union bpf_attr`, as the batch commands read it (include/uapi/linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct Attr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Calls `visit` for every entry of a hash, LRU hash, array or LPM map (not per-CPU).
pub fn for_each<K: Pod, V: Pod>(
    map: &MapData,
    mut visit: impl FnMut(&K, &V),
) -> Result<(), BatchError> {
    let (keys, values) = checked_sizes::<K, V>(map)?;
    raw(map, keys, values, |key, value| {
        let (key, value) = typed::<K, V>(key, value);
        visit(&key, &value);
    })
}

/// Sizes of the map's keys and values, which must be those of the types.
fn checked_sizes<K, V>(map: &MapData) -> Result<(usize, usize), BatchError> {
    let (keys, values) = sizes(map)?;
    let (expected_keys, expected_values) = (size_of::<K>(), size_of::<V>());
    if (keys, values) != (expected_keys, expected_values) {
        return Err(BatchError::Layout {
            keys,
            values,
            expected_keys,
            expected_values,
        });
    }
    Ok((keys, values))
}

/// The entry that these bytes are.
fn typed<K: Pod, V: Pod>(key: &[u8], value: &[u8]) -> (K, V) {
    assert!(key.len() >= size_of::<K>() && value.len() >= size_of::<V>());
    // SAFETY: both slices have at least the type's size, and a Pod accepts every bit pattern;
    // unaligned reads ask for no more.
    unsafe {
        (
            key.as_ptr().cast::<K>().read_unaligned(),
            value.as_ptr().cast::<V>().read_unaligned(),
        )
    }
}

/// Number of entries, whatever they are.
pub fn count(map: &MapData) -> Result<u64, BatchError> {
    let (keys, values) = sizes(map)?;
    let mut entries = 0;
    raw(map, keys, values, |_, _| entries += 1)?;
    Ok(entries)
}

fn sizes(map: &MapData) -> Result<(usize, usize), BatchError> {
    let info = map.info()?;
    Ok((info.key_size() as usize, info.value_size() as usize))
}

fn raw(
    map: &MapData,
    key_size: usize,
    value_size: usize,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), BatchError> {
    let mut walk = Walk::default();
    while walk.raw_step(map, (key_size, value_size), &mut visit)? {}
    Ok(())
}

/// A walk in steps, for whoever has other things to do in between. What comes or goes meanwhile
/// may be met or missed; nothing is met twice.
#[derive(Debug)]
pub struct Walk {
    /// Where the next step begins; none at first.
    from: Option<[u8; MARK]>,
    room: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            from: None,
            room: ENTRIES,
            keys: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl Walk {
    /// Visits the next entries, some thousands. False when these were the last.
    pub fn step<K: Pod, V: Pod>(
        &mut self,
        map: &MapData,
        mut visit: impl FnMut(&K, &V),
    ) -> Result<bool, BatchError> {
        let sizes = checked_sizes::<K, V>(map)?;
        self.raw_step(map, sizes, &mut |key, value| {
            let (key, value) = typed::<K, V>(key, value);
            visit(&key, &value);
        })
    }

    fn raw_step(
        &mut self,
        map: &MapData,
        (key_size, value_size): (usize, usize),
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, BatchError> {
        let mut to = [0_u8; MARK];
        let (found, more) = loop {
            self.keys.resize(self.room * key_size, 0);
            self.values.resize(self.room * value_size, 0);
            let mut attr = Attr {
                in_batch: self.from.as_ref().map_or(0, |from| from.as_ptr() as u64),
                out_batch: to.as_mut_ptr() as u64,
                keys: self.keys.as_mut_ptr() as u64,
                values: self.values.as_mut_ptr() as u64,
                count: u32::try_from(self.room).unwrap_or(u32::MAX),
                map_fd: map.fd().as_fd().as_raw_fd().cast_unsigned(),
                ..Attr::default()
            };
            let more = match lookup(&mut attr) {
                Ok(()) => true,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => false,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && self.room < 1 << 20 => {
                    self.room *= 2;
                    continue;
                }
                Err(error) => return Err(BatchError::Lookup(error)),
            };
            break ((attr.count as usize).min(self.room), more);
        };
        let entries = self
            .keys
            .chunks_exact(key_size)
            .zip(self.values.chunks_exact(value_size));
        entries
            .take(found)
            .for_each(|(key, value)| visit(key, value));
        self.from = Some(to);
        Ok(more)
    }
}

fn lookup(attr: &mut Attr) -> io::Result<()> {
    let size = size_of::<Attr>();
    // SAFETY: the attribute's pointers are to buffers that outlive the call, with room for
    // `count` keys and values of the map's sizes and for a place mark (a u32, or a key: none
    // of our keys comes near 64 bytes).
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_LOOKUP_BATCH,
            std::ptr::from_mut(attr),
            size,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aya::maps::{Array, HashMap, MapData};

    use super::*;

    // aya keeps the file descriptor to itself, so a test pins and opens again.
    fn reopen(name: &str, pin: impl FnOnce(&std::path::Path)) -> MapData {
        let pins = crate::testing::pins(name);
        let path = pins.map(name);
        pin(&path);
        let data = MapData::from_pin(path).expect("pinned a moment ago");
        std::fs::remove_dir_all(pins.root()).expect("own pins");
        data
    }

    #[test]
    #[ignore = "needs the right to make maps"]
    fn every_entry_of_a_hash_comes_once() {
        let mut map: HashMap<MapData, u32, [u32; 3]> = HashMap::create(20_000, 0).expect("map");
        for key in 0..15_000_u32 {
            map.insert(key, [key, 1, 2], 0).expect("room");
        }
        let data = reopen("hash", |path| map.pin(path).expect("bpffs"));
        let mut seen = BTreeMap::new();
        for_each(&data, |key: &u32, value: &[u32; 3]| {
            assert!(seen.insert(*key, *value).is_none(), "{key} twice");
        })
        .expect("readable");
        assert_eq!(seen.len(), 15_000);
        assert!(seen.iter().all(|(key, value)| *value == [*key, 1, 2]));
        assert_eq!(count(&data).expect("readable"), 15_000);
        let (mut walk, mut steps, mut again) = (Walk::default(), 1, 0);
        while walk
            .step(&data, |_: &u32, _: &[u32; 3]| again += 1)
            .expect("readable")
        {
            steps += 1;
        }
        assert_eq!(again, 15_000);
        assert!(steps > 2, "{steps}");
        let error = for_each(&data, |_: &u32, _: &u32| {}).expect_err("another layout");
        assert!(matches!(error, BatchError::Layout { .. }));
    }

    #[test]
    #[ignore = "needs the right to make maps"]
    fn an_array_is_read_whole_and_an_empty_hash_is_empty() {
        let mut array: Array<MapData, u32> = Array::create(10_000, 0).expect("map");
        array.set(9_999, 7, 0).expect("last slot");
        let data = reopen("array", |path| array.pin(path).expect("bpffs"));
        let mut last = (0, 0);
        for_each(&data, |key: &u32, value: &u32| last = (*key, *value)).expect("readable");
        assert_eq!(last, (9_999, 7));
        let empty: HashMap<MapData, u32, u32> = HashMap::create(16, 0).expect("map");
        let data = reopen("empty", |path| empty.pin(path).expect("bpffs"));
        assert_eq!(count(&data).expect("readable"), 0);
    }
}
