//! Interfaces by which replies may leave though nothing comes in by them: those that carry a default
//! route. They get the egress program alone, for as long as they do.
//!
//! Not those without hardware addresses: the egress program reads Ethernet frames.

use std::collections::{BTreeMap, BTreeSet};

use super::uplink::Uplink;
use crate::load::Datapath;
use crate::netlink::{Link, Links, default_route_interfaces};
use crate::observe::health::NotReady;
use crate::observe::state::{EGRESS_ONLY, InterfaceState};

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct Exits {
    by_name: BTreeMap<String, Exit>,
}

#[derive(Debug)]
struct Exit {
    ifindex: u32,
    /// The program's id, or why there is none.
    egress: Result<Option<u32>, String>,
}

impl Exits {
    /// Follows the default routes to where they are now.
    pub(super) fn follow(
        &mut self,
        links: &Links,
        uplinks: &BTreeMap<String, Uplink>,
        datapath: &mut Datapath,
    ) {
        let routes = match default_route_interfaces() {
            Ok(routes) => routes,
            Err(error) => {
                tracing::warn!(%error, "cannot list the default routes");
                return;
            }
        };
        let wanted: Vec<&Link> = routes
            .iter()
            .filter_map(|index| links.by_index(*index))
            .filter(|link| link.mac.is_some() && !uplinks.contains_key(&link.name))
            .collect();
        let names: BTreeSet<_> = wanted.iter().map(|link| link.name.as_str()).collect();
        self.by_name.retain(|name, _| {
            let keep = names.contains(name.as_str());
            if !keep {
                match datapath.detach(name) {
                    Ok(()) => tracing::info!(interface = %name, "carries no default route any more; detached"),
                    Err(error) => tracing::warn!(interface = %name, %error, "cannot detach"),
                }
            }
            keep
        });
        for link in wanted {
            self.attach(link, datapath);
        }
    }

    fn attach(&mut self, link: &Link, datapath: &mut Datapath) {
        let known = self.by_name.get(&link.name);
        let said = known.and_then(|exit| exit.egress.as_ref().err());
        if known.is_some_and(|exit| exit.ifindex == link.index && exit.egress.is_ok()) {
            return;
        }
        let attached = datapath.attach_egress(&link.name);
        let egress = match attached {
            Ok(attachment) => {
                tracing::info!(interface = %link.name, "carries a default route; attached for replies");
                Ok(attachment.egress_program)
            }
            Err(error) => {
                let error = error.to_string();
                if said != Some(&error) {
                    tracing::error!(interface = %link.name, %error, "cannot attach for replies");
                }
                Err(error)
            }
        };
        let ifindex = link.index;
        self.by_name
            .insert(link.name.clone(), Exit { ifindex, egress });
    }

    /// What was attached is not there as it was; [`Self::follow`] attaches again.
    pub(super) fn lost(&mut self, why: &str) {
        for exit in self.by_name.values_mut() {
            exit.egress = Err(why.to_owned());
        }
    }

    /// True when attaching to one of them failed.
    pub(super) fn wants_retry(&self) -> bool {
        self.by_name.values().any(|exit| exit.egress.is_err())
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Why the node is not ready.
    pub(super) fn troubles(&self) -> impl Iterator<Item = NotReady> + '_ {
        self.by_name.iter().filter_map(|(name, exit)| {
            Some(NotReady::NotAttached {
                interface: name.clone(),
                error: exit.egress.as_ref().err()?.clone(),
            })
        })
    }

    /// For `sluice status`.
    pub(super) fn states(&self) -> impl Iterator<Item = InterfaceState> + '_ {
        self.by_name.iter().map(|(name, exit)| {
            let note = "carries a default route: replies may leave by it".to_owned();
            let error = exit.egress.as_ref().err().cloned();
            InterfaceState {
                name: name.clone(),
                ifindex: exit.ifindex,
                mode: EGRESS_ONLY.to_owned(),
                xdp: None,
                egress: exit.egress.as_ref().ok().copied().flatten(),
                notes: std::iter::once(note).chain(error).collect(),
            }
        })
    }
}
