//! How good a node is at answering for a VIP.
//!
//! A usable endpoint in a bad state never lowers a node that has a good one: the best counts.
//! (A node used to leave the announcers because one of two endpoints was not ready.)

use std::net::IpAddr;

use crate::desired::Tier;
use crate::model::context::Context;
use crate::model::pool::Pool;
use crate::model::select::Use;
use crate::watch::object::{Labels, Node};

/// A node with this label answers for no VIP.
pub(super) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Tier for the best use that any of a VIP's frontends has for its endpoints, seen from here.
pub(super) fn of(reach: Use) -> Tier {
    match reach {
        Use::Ready => Tier::Ready,
        Use::Fallback => Tier::Draining,
        Use::No => Tier::Any,
    }
}

/// Whether this node must not answer for an address of the pool.
pub(super) fn is_excluded(context: &Context, node: Option<&Node>, pool: Option<&Pool>) -> bool {
    let no_labels = Labels::new();
    let labels = node.map_or(&no_labels, |n| &n.labels);
    let by_label = labels.contains_key(EXCLUDE_LABEL) && !context.ignore_exclude_label;
    let selector = pool.and_then(|p| p.nodes.as_ref());
    by_label || selector.is_some_and(|s| !s.matches(labels))
}

/// Said when a selector cannot be answered because nobody described this node.
pub(super) fn unknown_node(pool: &Pool, vip: IpAddr, node: &str) -> String {
    format!(
        "does not answer for {vip}: AddressPool {} has spec.announce.nodeSelector, expected a \
         Node object named {node:?}",
        pool.name
    )
}
