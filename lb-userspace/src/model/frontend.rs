//! One Service's share of the desired state: a frontend per VIP and port.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::desired::{Endpoint, Frontend, FrontendKey, FrontendVerdict, Ignored, Via};
use crate::model::assign::Assignment;
use crate::model::merge::{self, Merged, Union};
use crate::model::select::{self, Use};
use crate::model::settings::{Clients, Port, Settings};
use crate::watch::object::{Service, Slice};

/// What follows from one Service and its slices.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) frontends: BTreeMap<FrontendKey, Frontend>,
    /// Every VIP of the Service with the best use of an endpoint from here.
    pub(super) reach: BTreeMap<IpAddr, Use>,
    pub(super) ignored: Vec<Ignored>,
}

#[derive(Debug, Error)]
enum EndpointError {
    #[error("endpoint {0} has the address of the Service's own VIP: expected a pod's")]
    IsVip(SocketAddr),
}

/// Builds the view of one Service.
pub(super) fn view<'a>(
    service: &Service,
    settings: &Settings,
    assignment: &Assignment,
    slices: impl Iterator<Item = &'a Slice>,
    this_node: &str,
) -> View {
    let union = merge::merge(slices, this_node);
    let mut view = View::default();
    let object = || format!("Service/{}", service.name);
    let own = settings.problems.iter().map(ToString::to_string);
    let own = own.chain(assignment.problems.iter().map(ToString::to_string));
    view.ignored.extend(own.map(|reason| Ignored {
        object: object(),
        reason,
    }));
    for vip in &assignment.vips {
        view.reach.insert(*vip, Use::No);
        for port in &settings.ports {
            let (address, number) = (*vip, port.number);
            let key = FrontendKey {
                address,
                port: number,
                protocol: port.protocol,
            };
            if assignment.lost.contains_key(&key) {
                continue;
            }
            let frontend = frontend(service, settings, assignment, port, *vip, &union);
            let reach = select::reach(settings.policy, &frontend.endpoints);
            view.reach
                .entry(*vip)
                .and_modify(|best| *best = reach.max(*best));
            view.frontends.insert(key, frontend);
        }
    }
    view.ignored
        .extend(loops(&union, assignment).map(|error| Ignored {
            object: object(),
            reason: error.to_string(),
        }));
    view.ignored
        .extend(union.problems.into_iter().map(|(slice, error)| Ignored {
            object: format!("EndpointSlice/{slice}"),
            reason: error.to_string(),
        }));
    view
}

fn frontend(
    service: &Service,
    settings: &Settings,
    assignment: &Assignment,
    port: &Port,
    vip: IpAddr,
    union: &Union,
) -> Frontend {
    let listed = union.ports.get(&(port.name.clone(), port.protocol));
    let listed = listed.into_iter().flatten();
    // Only endpoints of the VIP's family: nothing here translates between families.
    let usable = listed
        .filter(|(at, _)| at.is_ipv4() == vip.is_ipv4() && !assignment.vips.contains(&at.ip()));
    let mut endpoints: Vec<_> = usable.map(|(at, merged)| endpoint(*at, merged)).collect();
    let mut verdict = select::select(settings.policy, &mut endpoints);
    if settings.clients == Clients::Nobody {
        verdict = FrontendVerdict::Drop;
        for endpoint in &mut endpoints {
            endpoint.new_connections = false;
        }
    }
    Frontend {
        service: service.name.clone(),
        port_name: port.name.clone(),
        policy: settings.policy,
        verdict,
        affinity: settings.affinity,
        source_ranges: match &settings.clients {
            Clients::All | Clients::Nobody => Vec::new(),
            Clients::Within(ranges) => ranges.clone(),
        },
        drain_timeout: settings.drain_timeout,
        endpoints,
    }
}

fn endpoint(address: SocketAddr, merged: &Merged) -> Endpoint {
    Endpoint {
        address,
        node: merged.node.clone(),
        local: merged.local,
        ready: merged.ready,
        serving: merged.serving,
        terminating: merged.terminating,
        uid: merged.uid.clone(),
        state: select::state(merged.ready, merged.terminating),
        via: if merged.local { Via::Local } else { Via::Nat },
        new_connections: false,
    }
}

/// Endpoints that would send a VIP's packets back to the VIP.
fn loops(union: &Union, assignment: &Assignment) -> impl Iterator<Item = EndpointError> {
    let endpoints = union.ports.values().flat_map(|endpoints| endpoints.keys());
    let mut looping: Vec<_> = endpoints
        .filter(|at| assignment.vips.contains(&at.ip()))
        .copied()
        .collect();
    looping.sort();
    looping.dedup();
    looping.into_iter().map(EndpointError::IsVip)
}
