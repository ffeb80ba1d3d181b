//! What this node should do, as plain data: the output of `model`, the input of `plan`.
//!
//! Deterministic (ordered maps, sorted lists) and free of kernel notions: no ids, no map
//! layouts, no clock. Two equal worlds give two equal `Desired`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

/// Transport protocol of a frontend. SCTP is refused by the model.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP, protocol number 6.
    Tcp,
    /// UDP, protocol number 17.
    Udp,
}

impl Protocol {
    /// IANA protocol number as it stands in the IPv4 header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// Namespace and name of a Kubernetes object.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A Service by a stable 64-bit hash of its name, never 0: a map value has no room for text, and
/// after a restart the hash is all there is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ServiceId(u64);

impl ServiceId {
    /// Of this Service.
    pub fn of(name: &ObjectName) -> Self {
        Self(fnv(format!("{}/{}", name.namespace, name.name).bytes()))
    }

    /// From a map value, where 0 means unknown.
    pub fn from_raw(raw: u64) -> Option<Self> {
        (raw != 0).then_some(Self(raw))
    }

    /// As it stands in a map value.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// FNV-1a, so that it is the same in every release; never 0.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash.max(1)
}

/// A VIP's address with protocol and port (host order).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FrontendKey {
    /// The VIP.
    pub address: IpAddr,
    /// Port clients connect to.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
}

/// `externalTrafficPolicy` of the Service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub enum Policy {
    /// Every endpoint of the cluster may be used.
    #[default]
    Cluster,
    /// Only endpoints on this node.
    Local,
}

/// What happens to a new connection to the frontend.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontendVerdict {
    /// At least one endpoint takes new connections.
    Forward,
    /// Policy Local: usable endpoints exist, none of them here.
    Drop,
    /// No usable endpoint anywhere.
    Reject,
}

/// Lifecycle state of an endpoint as the slices alone tell it. `timer::drain` refines it
/// with what vanished and with deadlines.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointState {
    /// Takes new connections.
    Active,
    /// Listed, not ready, not terminating: no new connections, old ones stay.
    Unready,
    /// Terminating (or vanished): old connections stay until they end or a deadline passes.
    Draining,
    /// Dead: its flows are reset.
    Gone,
}

impl EndpointState {
    /// Word for tables and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Unready => "unready",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

/// How a packet reaches an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// On this node: DNAT, then the node's own stack.
    Local,
    /// No agent there: full NAT, sent out again by XDP.
    Nat,
}

/// One endpoint behind a frontend.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are Kubernetes' own conditions"
)]
pub struct Endpoint {
    /// Address and port of the endpoint (the slice's port, not the Service's).
    pub address: SocketAddr,
    /// `nodeName` of the slice entry.
    pub node: Option<String>,
    /// True when `node` is this node.
    pub local: bool,
    /// Condition, null counted as true.
    pub ready: bool,
    /// Condition, null counted as true.
    pub serving: bool,
    /// Condition, null counted as false.
    pub terminating: bool,
    /// `targetRef.uid`: tells a reused address from the old pod's.
    pub uid: Option<String>,
    /// State by the slices alone.
    pub state: EndpointState,
    /// How to reach it from here.
    pub via: Via,
    /// In the set that new connections are spread over.
    pub new_connections: bool,
}

/// Everything the data plane must know of one VIP:port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frontend {
    /// The Service that owns it.
    pub service: ObjectName,
    /// Name of the Service's port; empty when it has none.
    pub port_name: String,
    /// externalTrafficPolicy.
    pub policy: Policy,
    /// Fate of new connections.
    pub verdict: FrontendVerdict,
    /// ClientIP affinity, with its timeout.
    pub affinity: Option<Duration>,
    /// Allowed client networks; empty means all.
    pub source_ranges: Vec<IpNet>,
    /// `sluice.dev/drain-timeout`, when set.
    pub drain_timeout: Option<Duration>,
    /// Sorted by address, no address twice.
    pub endpoints: Vec<Endpoint>,
}

/// How good this node is at serving a VIP; better first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// An endpoint usable from here is ready.
    Ready,
    /// Only draining endpoints are usable from here.
    Draining,
    /// Nothing usable: answer and refuse.
    Any,
    /// Must not answer for this VIP.
    Excluded,
}

/// A VIP and this node's eligibility for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vip {
    /// This node's tier.
    pub tier: Tier,
}

/// An object (or a part of one) that was left out, and why. The rest goes on.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Ignored {
    /// `Kind/namespace/name`, or a file path with a line for what could not be parsed.
    pub object: String,
    /// Names the field and what was expected.
    pub reason: String,
}

/// What this node should do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Desired {
    /// Every VIP handed out, also those without a frontend.
    pub vips: BTreeMap<IpAddr, Vip>,
    /// Every VIP:port.
    pub frontends: BTreeMap<FrontendKey, Frontend>,
    /// What was left out.
    pub ignored: Vec<Ignored>,
    /// True once every kind has been listed once; nothing is deleted before.
    pub complete: bool,
}
