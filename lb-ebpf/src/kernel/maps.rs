//! The pinned maps, and the only code that touches their memory.
//!
//! Names, keys and values are the contract of `lb_common::abi`; `docs/maps.md` says who writes
//! and who reads each. Hash values are handed out as [`Slot`] handles that read and write field
//! by field: an entry may be replaced under a program's feet, so nothing may be kept beyond the
//! packet, and no handle survives a deletion.

use core::cell::UnsafeCell;

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use lb_common::abi::{
    Affinity, AffinityKey, Answered, Config, Conflict, Counter, DrainKey, DrainValue, Endpoint,
    Flow, FlowKey, Frontend, FrontendKey, Handshake, Health, Reverse, SourceRange, TableElement,
    Vip,
};
use lb_common::{Reason, V4, limits};
use lb_ebpf::world::{Draft, Entry, Inserted, Slot};

/// Refusals sent in one coarse tick.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Refusals {
    /// The tick.
    pub(crate) tick: u32,
    /// How many.
    pub(crate) count: u32,
}

#[btf_map(name = "config")]
pub(crate) static CONFIG: Array<Config<V4>, 1> = Array::new();
#[btf_map(name = "dest_bitmap")]
pub(crate) static DEST_BITMAP: Array<u64, { 1 << (limits::BITMAP_BITS - 6) }> = Array::new();
#[btf_map(name = "vips")]
pub(crate) static VIPS: HashMap<V4, Vip, { limits::VIPS }> = HashMap::new();
#[btf_map(name = "frontends")]
pub(crate) static FRONTENDS: HashMap<FrontendKey<V4>, Frontend, { limits::FRONTENDS }> =
    HashMap::new();
#[btf_map(name = "endpoints")]
pub(crate) static ENDPOINTS: Array<Endpoint<V4>, { limits::ENDPOINTS }> = Array::new();
#[btf_map(name = "health")]
pub(crate) static HEALTH: Array<Health, { limits::ENDPOINTS }> = Array::new();
#[btf_map(name = "tables")]
pub(crate) static TABLES: Array<TableElement, { limits::TABLE_ELEMENTS }, { MMAPABLE }> =
    Array::new();
#[btf_map(name = "flows")]
pub(crate) static FLOWS: HashMap<FlowKey<V4>, Flow<V4>, { limits::FLOWS }> = HashMap::new();
#[btf_map(name = "reverse")]
pub(crate) static REVERSE: HashMap<FlowKey<V4>, Reverse<V4>, { limits::REVERSE }> = HashMap::new();
#[btf_map(name = "handshakes")]
pub(crate) static HANDSHAKES: LruHashMap<FlowKey<V4>, Handshake<V4>, { limits::HANDSHAKES }> =
    LruHashMap::new();
#[btf_map(name = "answered")]
pub(crate) static ANSWERED: LruHashMap<FlowKey<V4>, Answered, { limits::ANSWERED }> =
    LruHashMap::new();
#[btf_map(name = "affinity")]
pub(crate) static AFFINITY: LruHashMap<AffinityKey<V4>, Affinity, { limits::AFFINITY }> =
    LruHashMap::new();
#[btf_map(name = "source_ranges")]
pub(crate) static SOURCE_RANGES: LpmTrie<SourceRange<V4>, u32, { limits::SOURCE_RANGES }> =
    LpmTrie::new();
#[btf_map(name = "conflicts")]
pub(crate) static CONFLICTS: LruHashMap<V4, Conflict, { limits::CONFLICTS }> = LruHashMap::new();
#[btf_map(name = "refusals")]
pub(crate) static REFUSALS: Array<Refusals, 1> = Array::new();
#[btf_map(name = "draft")]
pub(crate) static DRAFT: PerCpuArray<Draft<V4>, 1> = PerCpuArray::new();
#[btf_map(name = "usage")]
pub(crate) static USAGE: Array<u64, { limits::ENDPOINTS }, { MMAPABLE }> = Array::new();
/// No program reads this one: it is here so that the agent's notes have a shape in BTF.
#[btf_map(name = "drains")]
pub(crate) static DRAINS: HashMap<DrainKey<V4>, DrainValue, { limits::DRAINS }> = HashMap::new();
#[btf_map(name = "counters")]
pub(crate) static COUNTERS: PerCpuArray<Counter, { Reason::COUNT }> = PerCpuArray::new();

const MMAPABLE: usize = aya_ebpf::bindings::BPF_F_MMAPABLE as usize;

/// A value in map memory.
#[derive(Clone, Copy)]
pub(crate) struct MapSlot<T>(*mut T);

impl<T: Copy> Slot<T> for MapSlot<T> {
    #[inline(always)]
    fn read(&self) -> T {
        // SAFETY: the pointer came from a successful lookup in this program run, and entries of
        // preallocated maps stay mapped; a torn read of a replaced entry is a value of T still.
        unsafe { *self.0 }
    }

    #[inline(always)]
    fn get<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as in `read`; the reference does not leave the closure.
        look(unsafe { &*self.0 })
    }

    #[inline(always)]
    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`; the reference does not leave the closure, and other CPUs write
        // plain integers only.
        change(unsafe { &mut *self.0 })
    }
}

/// Gives a hash map the interface of the pipeline.
pub(crate) struct Table<M: 'static>(pub(crate) &'static M);

macro_rules! table {
    ($map:ident) => {
        impl<K: 'static, V: Copy + 'static, const N: usize, const F: usize> Entry<K, V>
            for Table<$map<K, V, N, F>>
        {
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
pub(crate) fn slot<T: Copy, const N: usize, const F: usize>(
    map: &'static Array<T, N, F>,
    index: u32,
) -> Option<MapSlot<T>> {
    map.get_ptr_mut(index).map(MapSlot)
}

/// Adds one packet to a reason's counter on this CPU.
#[inline(always)]
pub(crate) fn count(reason: u32, bytes: u64) {
    if let Some(counter) = COUNTERS.get_ptr_mut(reason) {
        // SAFETY: a per-CPU slot, and programs of one kind do not nest on a CPU; the egress
        // program may interrupt none of its own kind either.
        unsafe {
            (*counter).packets += 1;
            (*counter).bytes += bytes;
        }
    }
}

/// A time that is read at most once in a jiffy: reading a clock is a call, and costs half a lookup.
/// The time itself, and above it the jiffy in which it was read: the clock moves no faster.
pub(crate) struct Clock(UnsafeCell<u64>);

// SAFETY: loads and stores of one word; all CPUs write the same in a jiffy.
unsafe impl Sync for Clock {}

/// For [`World::tick`](lb_ebpf::world::World::tick).
pub(crate) static TICK: Clock = Clock(UnsafeCell::new(0));
/// For [`World::millis`](lb_ebpf::world::World::millis).
pub(crate) static MILLIS: Clock = Clock(UnsafeCell::new(0));

impl Clock {
    /// The time; `read` reads it, where it is not known yet in this jiffy.
    #[inline(always)]
    pub(crate) fn get(&self, jiffies: u32, read: impl FnOnce() -> u32) -> u32 {
        // SAFETY: as above.
        let last = unsafe { core::ptr::read_volatile(self.0.get()) };
        if (last >> 32) as u32 == jiffies {
            return last as u32;
        }
        let time = read();
        let now = u64::from(jiffies) << 32 | u64::from(time);
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(self.0.get(), now) };
        time
    }
}

/// True when the frontend's ranges hold the client.
#[inline(always)]
pub(crate) fn source_allowed(range: SourceRange<V4>) -> bool {
    SOURCE_RANGES.get(&Key::new(64, range)).is_some()
}

/// One word of the selection array; 0 out of range.
#[inline(always)]
pub(crate) fn table_word(element: u32, lane: usize) -> u32 {
    TABLES.get(element).map_or(0, |words| words[lane & 15])
}

/// Counts one flow of an endpoint in the sweep under way.
#[inline(always)]
pub(crate) fn use_endpoint(id: u32) {
    if let Some(count) = slot(&USAGE, id) {
        count.update(|count| *count += 1);
    }
}

/// This CPU's room for a handshake under construction. Packet programs run with softirqs off, so
/// no other run on this CPU comes between.
#[inline(always)]
pub(crate) fn draft() -> Option<MapSlot<Draft<V4>>> {
    DRAFT.get_ptr_mut(0).map(MapSlot)
}
