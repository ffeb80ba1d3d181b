//! Capacities, time-outs and the map memory they cost. Both sides use these; nothing repeats
//! them. Times are in coarse ticks of 2^30 ns (1.07 s): the data plane's clock is a shift away
//! from the kernel's coarse one.

/// Entries of the flow table. A `Local` flow takes one, a `Nat` flow two.
pub const FLOWS: usize = 1_000_000;
/// Entries of the reverse table of `Local` flows.
pub const REVERSE: usize = 1_000_000;
/// TCP handshakes and one-way UDP exchanges; the oldest make room.
pub const HANDSHAKES: usize = 65_536;
/// Handshakes that an endpoint has answered.
pub const ANSWERED: usize = 65_536;
/// VIP:port combinations.
pub const FRONTENDS: usize = 16_384;
/// Addresses answered for.
pub const VIPS: usize = 16_384;
/// Endpoints over all frontends; id 0 is never used.
pub const ENDPOINTS: usize = 131_072;
/// Elements of the selection array, 64 bytes each.
pub const TABLE_ELEMENTS: usize = crate::select::layout::ELEMENTS as usize;
/// Clients remembered for session affinity.
pub const AFFINITY: usize = 65_536;
/// Source ranges over all frontends.
pub const SOURCE_RANGES: usize = 65_536;
/// Addresses somebody else has claimed.
pub const CONFLICTS: usize = 256;
/// Endpoints whose draining survives a restart of the agent.
pub const DRAINS: usize = 7_168;
/// Bits of the destination bitmap.
pub const BITMAP_BITS: u32 = 16;
/// Candidates a connection may be offered to.
pub const MAX_CANDIDATES: u32 = 3;
/// SNAT ports tried for one connection.
pub const SNAT_TRIES: u32 = 12;

/// SNAT ports by default, both included.
pub const SNAT_PORTS: (u16, u16) = (61_000, 65_535);
/// Refusals (RST, unreachable, echo replies) per second and node.
pub const REFUSALS_PER_SECOND: u32 = 1_000;

/// Shift from nanoseconds to coarse ticks.
pub const TICK_SHIFT: u32 = 30;

/// Coarse ticks that make up `seconds`, rounded up.
pub const fn ticks(seconds: u32) -> u32 {
    ((seconds as u64 * 1_000_000_000 + (1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as u32
}

/// Idle time after which an established TCP flow is forgotten.
pub const TCP_ESTABLISHED: u32 = ticks(24 * 3600);
/// The same once one side has sent FIN.
pub const TCP_HALF_CLOSED: u32 = ticks(3600);
/// The same once both sides have.
pub const TCP_CLOSING: u32 = ticks(60);
/// The same after a RST.
pub const TCP_RESET: u32 = ticks(10);
/// Idle time of an answered UDP exchange.
pub const UDP_ANSWERED: u32 = ticks(120);
/// Time without an answer after which a one-way UDP exchange may be moved.
pub const UDP_ONE_WAY: u32 = ticks(30);
/// Age at which a handshake counts as dead.
pub const HANDSHAKE: u32 = ticks(60);
/// A repeated SYN younger than this (units of 2^20 ns, about 1 ms) goes where the first went.
pub const SYN_PATIENCE_MS: u32 = 200;

/// All maps together take no more kernel memory than this, in bytes.
pub const MEMORY_BUDGET: usize = 320 << 20;

/// Kernel memory of a preallocated hash map in bytes: `struct htab_elem` (48), key and value
/// rounded to 8, and a 16-byte bucket head per power-of-two slot (kernel/bpf/hashtab.c).
pub const fn hash_memory(entries: usize, key: usize, value: usize) -> usize {
    entries * (48 + key.next_multiple_of(8) + value.next_multiple_of(8))
        + entries.next_power_of_two() * 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::V4;
    use crate::abi::*;
    use core::mem::size_of;

    fn map<K, V>(entries: usize) -> usize {
        hash_memory(entries, size_of::<K>(), size_of::<V>())
    }

    #[test]
    fn map_memory_when_full_stays_in_budget() {
        let total = map::<FlowKey<V4>, Flow<V4>>(FLOWS)
            + map::<FlowKey<V4>, Reverse<V4>>(REVERSE)
            + map::<FlowKey<V4>, Handshake<V4>>(HANDSHAKES)
            + map::<FlowKey<V4>, Answered>(ANSWERED)
            + map::<FrontendKey<V4>, Frontend>(FRONTENDS)
            + map::<V4, Vip>(VIPS)
            + map::<AffinityKey<V4>, Affinity>(AFFINITY)
            + map::<DrainKey<V4>, DrainValue>(DRAINS)
            + ENDPOINTS * size_of::<Endpoint<V4>>()
            + ENDPOINTS * size_of::<Health>()
            + ENDPOINTS * size_of::<u32>()
            + TABLE_ELEMENTS * 64
            + (1 << BITMAP_BITS) / 8
            + SOURCE_RANGES * 96;
        assert!(total <= MEMORY_BUDGET, "{} MiB", total >> 20);
    }
}
