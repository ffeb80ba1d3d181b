//! The vocabulary of draining: names of lives, their state, and what a change asks for.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::desired::{EndpointState, FrontendKey, ObjectName, fnv};

/// One life of one endpoint. An address reused by another pod, or one that returns after it
/// was gone, gets another incarnation and with it another endpoint id: flows of the old life
/// must never reach the new one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct EndpointRef {
    /// The frontend.
    pub frontend: FrontendKey,
    /// Address and port of the endpoint.
    pub address: SocketAddr,
    /// Unique among the lives known; never 0.
    pub incarnation: u32,
}

/// Which pod an endpoint is: a stable 64-bit hash of its uid, never 0. Hashed because a map
/// value has no room for text, and after a restart the hash is all there is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PodId(u64);

impl PodId {
    /// From the object's uid.
    pub fn of(uid: &str) -> Self {
        Self(fnv(uid.bytes()))
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

/// What this node itself has seen of one of its pods. Only for addresses of this node: a
/// neighbour that does not answer on the LAN proves nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PodSight {
    /// Proof: its link or route is gone.
    Gone(IpAddr),
    /// A hint that needs a probe: its fdb or neighbour entry is gone, perhaps of old age.
    Suspect(IpAddr),
    /// It is there (again).
    Alive(IpAddr),
}

/// Why an endpoint is in its state.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The slices say ready.
    Ready,
    /// The slices say neither ready nor terminating.
    NotReady,
    /// The slices say terminating.
    Terminating,
    /// No slice lists it, or its Service or VIP went.
    Vanished,
    /// Its deadline passed.
    Deadline,
    /// It vanished, and this node saw its pod go.
    SeenGone,
    /// Another pod has its address.
    Replaced,
    /// Known from before the agent's restart, not yet listed again.
    Restored,
}

impl Cause {
    /// Word for tables and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Terminating => "terminating",
            Self::Vanished => "vanished",
            Self::Deadline => "deadline",
            Self::SeenGone => "seen_gone",
            Self::Replaced => "replaced",
            Self::Restored => "restored",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to the flows an endpoint has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flows {
    /// They stay.
    Stay,
    /// UDP: re-selected.
    Move,
    /// TCP: both sides get a RST.
    Reset,
}

/// How one life stands now. The level; [`Effect`] is the edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lifecycle {
    /// Its state.
    pub state: EndpointState,
    /// Gets new connections. Narrower than the snapshot's: never for a pod seen gone.
    pub new_connections: bool,
    /// Fate of the flows it has.
    pub flows: Flows,
    /// When the state began (boot clock).
    pub since: Duration,
    /// When it becomes `Gone`, unless something changes (boot clock).
    pub deadline: Option<Duration>,
    /// Which pod it is.
    pub uid: Option<PodId>,
    /// It is on this node.
    pub local: bool,
    /// Why it is in this state.
    pub cause: Cause,
}

/// What a change asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// The state changed; `from` is `None` for a new life.
    State {
        /// Whose.
        endpoint: EndpointRef,
        /// State before.
        from: Option<EndpointState>,
        /// State from here on.
        to: EndpointState,
        /// Why.
        cause: Cause,
    },
    /// New connections turned on or off.
    Selection {
        /// Whose.
        endpoint: EndpointRef,
        /// From here on.
        new_connections: bool,
    },
    /// Re-select every flow of this UDP endpoint.
    MoveUdp {
        /// Whose.
        endpoint: EndpointRef,
    },
    /// Reset every flow of this TCP endpoint, idle ones too, and the pod's side.
    Reset {
        /// Whose.
        endpoint: EndpointRef,
    },
    /// Find out whether this pod still lives, and report a [`PodSight`].
    Probe {
        /// Its address.
        address: IpAddr,
    },
}

/// A frontend that nobody asks for any more, but whose endpoints still drain: its VIP is
/// answered, refuses new connections, and goes to nobody else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hold {
    /// The Service it belonged to; unknown after a restart.
    pub service: Option<ObjectName>,
    /// When the last of its endpoints becomes `Gone` (boot clock). Passed once all are, and
    /// their flows are being reset.
    pub until: Duration,
}
