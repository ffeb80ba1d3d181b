//! The lab: a network of namespaces with real sockets, real processes and real frames.
//!
//! Demo, lab tests and benches all stand on this one crate, so that what is shown, what is tested and what is
//! measured are the same thing. A [`Lab`] is a LAN (a bridge in a namespace of its own), client namespaces, nodes
//! with pods behind a bridge, and servers without an agent; all of it goes away when the value is dropped.
//! The binary of the same name holds the servers and load generators that run inside.
//!
//! It must never touch an interface, address or process outside the namespaces it made.

mod builder;
mod cgroups;
mod ip;
mod names;
mod topology;

pub mod agent;
pub mod cluster;
pub mod drive;
pub mod hist;
pub mod http;
pub mod load;
pub mod manifests;
pub mod ns;
pub mod oci;
pub mod payload;
pub mod peer;
pub mod proc;
pub mod raw;
pub mod report;
pub mod rollout;
pub mod serve;
pub mod stage;
pub mod teardown;
pub mod xdp_pass;

pub use builder::{LabBuilder, Offloads, PodLinks, RpFilter};
pub use ns::Ns;
pub use proc::Proc;
pub use topology::{Client, Lab, LanServer, Node, POD_BRIDGE, Pod, PodId, UPLINK, format_mac};
