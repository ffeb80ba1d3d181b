//! Runs the program under test on a packet made anew, whatever the last run did to it.
//!
//! The packet comes from a template in a map; what varies between packets are words that are
//! zero there, so that a checksum stays right by one addition. Making it costs the same whatever
//! runs afterwards: a bare TX through the same harness is what is taken off. Every field is
//! written once and in one piece: a load from two stores that are still under way waits for both,
//! and packets from a device are not under way.

use aya_ebpf::bindings::xdp_action::XDP_ABORTED;
use aya_ebpf::btf_maps::{Array, PerCpuArray, ProgramArray};
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use lb_common::abi::pod::Plain;
use lb_common::checksum;

use crate::packet::{IP_CHECKSUM, PORTS, Packet, Room, SRC, TCP_CHECKSUM};

/// What the bench sets: which packets, and which program.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Knobs {
    /// [`RANDOM`], [`FRESH`] or, for the template as it is, anything else.
    packets: u32,
    /// Index in `programs`.
    program: u32,
}

/// One of 64k sources, at random.
const RANDOM: u32 = 1;
/// A source and port that were never used before.
const FRESH: u32 = 2;

#[btf_map(name = "template")]
static TEMPLATE: Array<Room, 1> = Array::new();
#[btf_map(name = "knobs")]
static KNOBS: Array<Knobs, 1> = Array::new();
#[btf_map(name = "packets")]
static PACKETS: PerCpuArray<u32, 1> = PerCpuArray::new();
#[btf_map(name = "programs")]
static PROGRAMS: ProgramArray<8> = ProgramArray::new();

/// Makes a packet and hands it to the program under test.
#[xdp]
fn floor_harness(ctx: XdpContext) -> u32 {
    let (Some(packet), Some(template), Some(knobs)) =
        (Packet::new(&ctx), TEMPLATE.get(0), KNOBS.get(0))
    else {
        return XDP_ABORTED;
    };
    let (address, port) = match knobs.packets {
        RANDOM => {
            // SAFETY: the helper takes nothing and touches nothing.
            let random = unsafe { bpf_get_prandom_u32() };
            (random as u16, 0)
        }
        FRESH => {
            let Some(count) = PACKETS.get_ptr_mut(0) else {
                return XDP_ABORTED;
            };
            // SAFETY: this CPU's slot, and test runs do not nest.
            let number = unsafe {
                *count += 1;
                *count
            };
            // Never port 0, whatever the byte order.
            (number as u16, (number >> 16) as u16 | 0x8080)
        }
        _ => (0, 0),
    };
    make(packet, Packet::in_map(template), address, port);
    // SAFETY: nothing is borrowed, and the program called takes the same context.
    unsafe { PROGRAMS.tail_call(&ctx, knobs.program) };
    XDP_ABORTED
}

/// Writes the template's headers with another lower half of the source address and, where the
/// template has none, a source port.
#[inline(always)]
fn make(packet: Packet, template: Packet, address: u16, port: u16) {
    copy::<u32, 0>(packet, template);
    copy::<u16, 4>(packet, template);
    copy::<u32, 6>(packet, template);
    copy::<u16, 10>(packet, template);
    copy::<u16, 12>(packet, template);
    copy::<u64, 14>(packet, template);
    copy::<u16, 22>(packet, template);
    let sum = checksum::update_full(template.read::<u16, IP_CHECKSUM>(), address);
    packet.write::<_, IP_CHECKSUM>(sum);
    let source = template.read::<u32, SRC>() | second(address);
    packet.write::<_, SRC>(source);
    copy::<u32, 30>(packet, template);
    packet.write::<_, PORTS>(template.read::<u32, PORTS>() | first(port));
    copy::<u32, 38>(packet, template);
    copy::<u32, 42>(packet, template);
    copy::<u16, 46>(packet, template);
    copy::<u16, 48>(packet, template);
    let both = checksum::add(address, port);
    let sum = checksum::update_full(template.read::<u16, TCP_CHECKSUM>(), both);
    packet.write::<_, TCP_CHECKSUM>(sum);
    copy::<u16, 52>(packet, template);
}

#[inline(always)]
fn copy<T: Plain, const AT: usize>(packet: Packet, template: Packet) {
    packet.write::<_, AT>(template.read::<T, AT>());
}

/// A word as the first of two in memory.
#[inline(always)]
fn first(word: u16) -> u32 {
    let [a, b] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, 0, 0])
}

/// A word as the second of two in memory.
#[inline(always)]
fn second(word: u16) -> u32 {
    let [a, b] = word.to_ne_bytes();
    u32::from_ne_bytes([0, 0, a, b])
}
