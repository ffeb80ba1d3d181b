//! The floor's programs: bare TX, and a minimal DNAT over tables of three sizes.

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_PASS, XDP_TX};
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use lb_common::checksum;

use crate::packet::{
    DST, DST_MAC, ETHERTYPE, IP_CHECKSUM, PORTS, PROTOCOL, Packet, SRC, SRC_MAC, TCP_CHECKSUM,
    VERSION,
};

/// A tuple: source, destination, ports, protocol. As long as the product's, and as it stands in
/// the packet.
pub(crate) type Key = [u32; 4];

/// Where a flow goes, and what that changes in checksums: no byte more than DNAT needs.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Dnat {
    /// New destination address.
    address: u32,
    /// New destination port.
    port: u16,
    /// Delta of the address, for the network header.
    address_delta: u16,
    /// Delta of address and port, for the transport header.
    delta: u16,
    /// The next hop, in two parts.
    mac_end: u16,
    mac: u32,
}

#[btf_map(name = "one")]
static ONE: HashMap<Key, Dnat, 1> = HashMap::new();
#[btf_map(name = "many")]
static MANY: HashMap<Key, Dnat, 65_536> = HashMap::new();
#[btf_map(name = "fresh")]
static FRESH: HashMap<Key, Dnat, 1_000_000> = HashMap::new();

/// What all figures are net of.
#[xdp]
fn floor_tx(_: XdpContext) -> u32 {
    XDP_TX
}

/// F1: one lookup in a table of one entry.
#[xdp]
fn floor_f1(ctx: XdpContext) -> u32 {
    forward(&ctx, |key| ONE.get_ptr(key))
}

/// F2: the same in a table of 64k.
#[xdp]
fn floor_f2(ctx: XdpContext) -> u32 {
    forward(&ctx, |key| MANY.get_ptr(key))
}

/// F3: F1, whose entry knows no client, and a new entry in a table of a million.
#[xdp]
fn floor_f3(ctx: XdpContext) -> u32 {
    let mut remembered = false;
    let action = forward(&ctx, |key| {
        let [_, dst, ports, protocol] = *key;
        let known = ONE.get_ptr([0, dst, ports & DST_PORT, protocol])?;
        // SAFETY: the pointer came from a lookup in this run; the entry is never removed.
        remembered = FRESH.insert(key, unsafe { &*known }, 0).is_ok();
        Some(known)
    });
    // A full table is no measurement.
    if remembered { action } else { XDP_ABORTED }
}

const DST_PORT: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
const IPV4: u16 = 0x0800_u16.to_be();
const TCP: u8 = 6;

#[inline(always)]
fn forward(ctx: &XdpContext, mut find: impl FnMut(&Key) -> Option<*const Dnat>) -> u32 {
    let Some(packet) = Packet::new(ctx) else {
        return XDP_PASS;
    };
    let protocol = packet.read::<u8, PROTOCOL>();
    if packet.read::<u16, ETHERTYPE>() != IPV4
        || packet.read::<u8, VERSION>() != 0x45
        || protocol != TCP
    {
        return XDP_PASS;
    }
    let key = [
        packet.read::<u32, SRC>(),
        packet.read::<u32, DST>(),
        packet.read::<u32, PORTS>(),
        u32::from(protocol),
    ];
    let Some(to) = find(&key) else {
        return XDP_PASS;
    };
    // SAFETY: the pointer came from a lookup in this run, and nothing changes the entries.
    let to = unsafe { &*to };
    let header = checksum::update_full(packet.read::<u16, IP_CHECKSUM>(), to.address_delta);
    let transport = checksum::update_full(packet.read::<u16, TCP_CHECKSUM>(), to.delta);
    let own_mac = packet.read::<u32, DST_MAC>();
    let own_mac_end = packet.read::<u16, { DST_MAC + 4 }>();
    packet.write::<_, DST_MAC>(to.mac);
    packet.write::<_, { DST_MAC + 4 }>(to.mac_end);
    packet.write::<_, SRC_MAC>(own_mac);
    packet.write::<_, { SRC_MAC + 4 }>(own_mac_end);
    packet.write::<_, IP_CHECKSUM>(header);
    packet.write::<_, DST>(to.address);
    packet.write::<_, { PORTS + 2 }>(to.port);
    packet.write::<_, TCP_CHECKSUM>(transport);
    XDP_TX
}
