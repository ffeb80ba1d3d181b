//! ICMP for IPv4 (RFC 792): echo and destination unreachable.

use super::{Be16, Be32};
use crate::plain;

/// Length of the header.
pub const LEN: usize = 8;
/// Type: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type: destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Type: echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Code of [`UNREACHABLE`]: port.
pub const PORT: u8 = 3;

/// ICMP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum over the whole message.
    pub checksum: Be16,
    /// Meaning depends on the type; unused for unreachable.
    pub rest: Be32,
}

plain! { Icmp = 8: u8, u8, Be16, Be32; }
