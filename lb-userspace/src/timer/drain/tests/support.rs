//! Builders for the tests of draining: snapshots in one line, times in seconds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::desired::{
    Desired, Endpoint, EndpointState, Frontend, FrontendKey, FrontendVerdict, ObjectName, Policy,
    Protocol, Via,
};

use super::super::{DrainSettings, Drains, EndpointRef, Lifecycle};

/// Boot-clock second of a test; 0 is some time after boot.
pub(super) fn at(seconds: u64) -> Duration {
    Duration::from_secs(1000 + seconds)
}

pub(super) fn key(protocol: Protocol) -> FrontendKey {
    FrontendKey {
        address: IpAddr::from([192, 0, 2, 10]),
        port: 80,
        protocol,
    }
}

pub(super) fn pod(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 8080))
}

/// What one slice entry says. `ready` implies serving, as the API has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Says {
    Ready,
    ReadyTerminating,
    Unready,
    UnreadyServing,
    Terminating,
    TerminatingServing,
}

pub(super) const SAYS: [Says; 6] = [
    Says::Ready,
    Says::ReadyTerminating,
    Says::Unready,
    Says::UnreadyServing,
    Says::Terminating,
    Says::TerminatingServing,
];

impl Says {
    pub(super) fn ready(self) -> bool {
        matches!(self, Self::Ready | Self::ReadyTerminating)
    }

    pub(super) fn serving(self) -> bool {
        self.ready() || matches!(self, Self::UnreadyServing | Self::TerminatingServing)
    }

    pub(super) fn terminating(self) -> bool {
        matches!(
            self,
            Self::ReadyTerminating | Self::Terminating | Self::TerminatingServing
        )
    }
}

pub(super) struct Snapshot(pub(super) Desired);

impl Snapshot {
    /// A complete snapshot without a frontend.
    pub(super) fn empty() -> Self {
        Self(Desired {
            complete: true,
            ..Desired::default()
        })
    }

    pub(super) fn incomplete(mut self) -> Self {
        self.0.complete = false;
        self
    }

    /// Adds a frontend with the pods given as (address, conditions, uid).
    pub(super) fn with(
        mut self,
        frontend: FrontendKey,
        cap: Option<u64>,
        pods: &[(u8, Says, Option<&str>)],
    ) -> Self {
        let any_ready = pods.iter().any(|(_, says, _)| says.ready());
        let endpoints = pods
            .iter()
            .map(|(last, says, uid)| {
                let ending = says.terminating() && says.serving();
                Endpoint {
                    address: pod(*last),
                    node: Some("n1".into()),
                    local: true,
                    ready: says.ready(),
                    serving: says.serving(),
                    terminating: says.terminating(),
                    uid: uid.map(Into::into),
                    state: EndpointState::Active,
                    via: Via::Local,
                    new_connections: if any_ready { says.ready() } else { ending },
                }
            })
            .collect();
        let frontend_data = Frontend {
            service: ObjectName {
                namespace: "shop".into(),
                name: "web".into(),
            },
            port_name: String::new(),
            policy: Policy::Cluster,
            verdict: FrontendVerdict::Forward,
            affinity: None,
            source_ranges: Vec::new(),
            drain_timeout: cap.map(Duration::from_secs),
            endpoints,
        };
        self.0.frontends.insert(frontend, frontend_data);
        self
    }
}

/// A complete snapshot of one TCP frontend.
pub(super) fn tcp(cap: Option<u64>, pods: &[(u8, Says, Option<&str>)]) -> Desired {
    Snapshot::empty().with(key(Protocol::Tcp), cap, pods).0
}

/// The same over UDP.
pub(super) fn udp(pods: &[(u8, Says, Option<&str>)]) -> Desired {
    Snapshot::empty().with(key(Protocol::Udp), None, pods).0
}

pub(super) fn drains() -> Drains {
    Drains::new(DrainSettings::default())
}

/// The latest life of a pod behind the frontend of `protocol`.
pub(super) fn life(drains: &Drains, protocol: Protocol, last: u8) -> (EndpointRef, Lifecycle) {
    drains
        .current(&key(protocol), pod(last))
        .expect("endpoint is known")
}
