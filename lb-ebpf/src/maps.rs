//! The pinned maps, and the only code that touches their memory.
//!
//! Names, keys and values are the contract of `lb_common::abi`; `docs/maps.md` says who writes
//! and who reads each. Hash values are handed out as [`Slot`] handles that read and write field
//! by field: an entry may be replaced under a program's feet, so nothing may be kept beyond the
//! packet, and no handle survives a deletion.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Conflict, Counter, Endpoint, Flow, FlowKey, Frontend,
    FrontendKey, Handshake, Health, Reverse, SourceRange, TableElement, Vip,
};
use lb_common::{Reason, V4, limits};
use lb_ebpf::world::{Entry, Inserted, Slot};

/// Refusals sent in one coarse tick.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Refusals {
    /// The tick.
    pub tick: u32,
    /// How many.
    pub count: u32,
}

#[btf_map(name = "config")]
pub static CONFIG: Array<Config<V4>, 1> = Array::new();
#[btf_map(name = "dest_bitmap")]
pub static DEST_BITMAP: Array<u64, { 1 << (limits::BITMAP_BITS - 6) }> = Array::new();
#[btf_map(name = "vips")]
pub static VIPS: HashMap<V4, Vip, { limits::VIPS }> = HashMap::new();
#[btf_map(name = "frontends")]
pub static FRONTENDS: HashMap<FrontendKey<V4>, Frontend, { limits::FRONTENDS }> = HashMap::new();
#[btf_map(name = "endpoints")]
pub static ENDPOINTS: Array<Endpoint<V4>, { limits::ENDPOINTS }> = Array::new();
#[btf_map(name = "health")]
pub static HEALTH: Array<Health, { limits::ENDPOINTS }> = Array::new();
#[btf_map(name = "tables")]
pub static TABLES: Array<TableElement, { limits::TABLE_ELEMENTS }, { MMAPABLE }> = Array::new();
#[btf_map(name = "flows")]
pub static FLOWS: HashMap<FlowKey<V4>, Flow<V4>, { limits::FLOWS }> = HashMap::new();
#[btf_map(name = "reverse")]
pub static REVERSE: HashMap<FlowKey<V4>, Reverse<V4>, { limits::REVERSE }> = HashMap::new();
#[btf_map(name = "handshakes")]
pub static HANDSHAKES: LruHashMap<FlowKey<V4>, Handshake<V4>, { limits::HANDSHAKES }> =
    LruHashMap::new();
#[btf_map(name = "answered")]
pub static ANSWERED: LruHashMap<FlowKey<V4>, Answered, { limits::ANSWERED }> = LruHashMap::new();
#[btf_map(name = "affinity")]
pub static AFFINITY: LruHashMap<AffinityKey<V4>, Affinity, { limits::AFFINITY }> =
    LruHashMap::new();
#[btf_map(name = "source_ranges")]
pub static SOURCE_RANGES: LpmTrie<SourceRange<V4>, u32, { limits::SOURCE_RANGES }> = LpmTrie::new();
#[btf_map(name = "conflicts")]
pub static CONFLICTS: LruHashMap<V4, Conflict, { limits::CONFLICTS }> = LruHashMap::new();
#[btf_map(name = "refusals")]
pub static REFUSALS: Array<Refusals, 1> = Array::new();
#[btf_map(name = "counters")]
pub static COUNTERS: PerCpuArray<Counter, { Reason::COUNT }> = PerCpuArray::new();

const MMAPABLE: usize = aya_ebpf::bindings::BPF_F_MMAPABLE as usize;

/// A value in map memory.
#[derive(Clone, Copy)]
pub struct MapSlot<T>(*mut T);

impl<T: Copy> Slot<T> for MapSlot<T> {
    #[inline(always)]
    fn read(&self) -> T {
        // SAFETY: the pointer came from a successful lookup in this program run, and entries of
        // preallocated maps stay mapped; a torn read of a replaced entry is a value of T still.
        unsafe { *self.0 }
    }

    #[inline(always)]
    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`; the reference does not leave the closure, and other CPUs write
        // plain integers only.
        change(unsafe { &mut *self.0 })
    }
}

/// Gives a hash map the interface of the pipeline.
pub struct Table<M>(pub &'static M);

macro_rules! table {
    ($map:ident) => {
        impl<K, V: Copy, const N: usize, const F: usize> Entry<K, V> for Table<$map<K, V, N, F>> {
            type Slot = MapSlot<V>;

            #[inline(always)]
            fn find(&self, key: &K) -> Option<MapSlot<V>> {
                self.0.get_ptr_mut(key).map(MapSlot)
            }

            #[inline(always)]
            fn insert_new(&self, key: &K, value: &V) -> Inserted {
                match self.0.insert(key, value, BPF_NOEXIST.into()) {
                    Ok(()) => Inserted::Yes,
                    Err(EEXIST) => Inserted::Exists,
                    Err(_) => Inserted::Full,
                }
            }

            #[inline(always)]
            fn insert(&self, key: &K, value: &V) -> Inserted {
                match self.0.insert(key, value, 0) {
                    Ok(()) => Inserted::Yes,
                    Err(_) => Inserted::Full,
                }
            }

            #[inline(always)]
            fn remove(&self, key: &K) {
                // Not there is as good as removed.
                let _ = self.0.remove(key);
            }
        }
    };
}

table!(HashMap);
table!(LruHashMap);

const EEXIST: i32 = -17;

/// Slot `index` of an array map.
#[inline(always)]
pub fn slot<T: Copy, const N: usize, const F: usize>(
    map: &'static Array<T, N, F>,
    index: u32,
) -> Option<MapSlot<T>> {
    map.get_ptr_mut(index).map(MapSlot)
}

/// Adds one packet to a reason's counter on this CPU.
#[inline(always)]
pub fn count(reason: Reason, bytes: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(reason as u32) {
        // SAFETY: a per-CPU slot, and programs of one kind do not nest on a CPU; the egress
        // program may interrupt none of its own kind either.
        unsafe {
            (*counter).packets += 1;
            (*counter).bytes += u64::from(bytes);
        }
    }
}

/// True when the frontend's ranges hold the client.
#[inline(always)]
pub fn source_allowed(range: SourceRange<V4>) -> bool {
    SOURCE_RANGES.get(&Key::new(64, range)).is_some()
}
