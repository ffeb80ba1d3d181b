//! Which endpoints take new connections, and what happens when none does.
//!
//! Ready endpoints; if there are none, those that still serve while terminating; if there are
//! none, nobody. Policy Local asks the same of this node's endpoints alone. Zones, hints and
//! trafficDistribution play no part: one node answers for a VIP, and its zone is not the
//! client's.

use crate::desired::{Endpoint, EndpointState, FrontendVerdict, Policy};

/// State of an endpoint by its conditions alone. `ready` wins over everything: with
/// publishNotReadyAddresses a terminating pod is ready, and is not drained.
pub fn state(ready: bool, terminating: bool) -> EndpointState {
    match (ready, terminating) {
        (true, _) => EndpointState::Active,
        (false, true) => EndpointState::Draining,
        (false, false) => EndpointState::Unready,
    }
}

/// How an endpoint of a list may be used; better last, so that `max` finds the list's best.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Use {
    /// Not at all.
    No,
    /// Only when nothing is ready.
    Fallback,
    /// Ready.
    Ready,
}

/// Use of one endpoint.
pub fn usable(endpoint: &Endpoint) -> Use {
    if endpoint.ready {
        Use::Ready
    } else if endpoint.serving && endpoint.terminating {
        Use::Fallback
    } else {
        Use::No
    }
}

/// The best use any endpoint of the policy's list has, seen from this node.
pub fn reach(policy: Policy, endpoints: &[Endpoint]) -> Use {
    let listed = endpoints.iter().filter(|e| in_list(policy, e));
    listed.map(usable).max().unwrap_or(Use::No)
}

/// Marks the endpoints that take new connections and returns the frontend's verdict.
pub fn select(policy: Policy, endpoints: &mut [Endpoint]) -> FrontendVerdict {
    let best = reach(policy, endpoints);
    for endpoint in endpoints.iter_mut() {
        endpoint.new_connections =
            best != Use::No && in_list(policy, endpoint) && usable(endpoint) == best;
    }
    if best != Use::No {
        FrontendVerdict::Forward
    } else if reach(Policy::Cluster, endpoints) != Use::No {
        FrontendVerdict::Drop
    } else {
        FrontendVerdict::Reject
    }
}

fn in_list(policy: Policy, endpoint: &Endpoint) -> bool {
    match policy {
        Policy::Cluster => true,
        Policy::Local => endpoint.local,
    }
}
