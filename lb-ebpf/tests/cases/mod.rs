//! The data plane's cases, as data. They run twice: on the host (`lb-ebpf/tests`) and in the
//! kernel (`lb-userspace/tests/datapath`), and both must do the same.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each of the test programs that share this folder uses its own part of it"
)]

pub mod arp;
pub mod case;
pub mod failover;
pub mod host;
pub mod links;
pub mod nat;
pub mod node;
pub mod odd;
pub mod packet;
pub mod refuse;
pub mod scenes;
pub mod select;
pub mod sound;
pub mod spoil;
pub mod tcp;
pub mod udp;

use case::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    [
        arp::cases(),
        failover::cases(),
        links::cases(),
        nat::cases(),
        odd::cases(),
        refuse::cases(),
        select::cases(),
        tcp::cases(),
        udp::cases(),
    ]
    .concat()
}
