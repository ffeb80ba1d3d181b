//! `sluice endpoints`: each endpoint's state, until when it drains, and the flows it has left.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use clap::Args;
use lb_common::V4;
use lb_common::abi::{FrontendKey, Kind, State};
use serde::Serialize;

use super::output::{
    AgentLine, Names, ReadArgs, ReadError, Sources, Tabular, Wanted, age, columns, dash,
    frontend_name, render,
};
use super::services::{KernelEndpoints, KernelFrontends};
use crate::desired::EndpointState;
use crate::observe::state::{EndpointStateEntry, StateSnapshot};
use crate::timer::drain::DrainRecord;

/// Arguments of `sluice endpoints`.
#[derive(Args, Clone, Debug)]
pub struct EndpointsArgs {
    /// Only of this Service (namespace/name), VIP, or VIP:port
    #[arg(long, value_name = "SERVICE")]
    pub service: Option<String>,
    /// Where to read, how to print.
    #[command(flatten)]
    pub read: ReadArgs,
}

/// What `sluice endpoints` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndpointsView {
    /// Whether the agent could be asked.
    pub agent: AgentLine,
    /// One per life of an endpoint in the maps.
    pub endpoints: Vec<EndpointRow>,
}

/// One endpoint of one frontend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndpointRow {
    /// `namespace/name`, when the agent says so.
    pub service: Option<String>,
    /// `VIP:port/PROTOCOL`.
    pub frontend: String,
    /// Its address.
    pub address: SocketAddr,
    /// Id in the maps.
    pub id: u32,
    /// The node, when the agent says so.
    pub node: Option<String>,
    /// `local` or `nat`.
    pub via: &'static str,
    /// The agent's word for its state, else the data plane's.
    pub state: String,
    /// Why, when the agent says so.
    pub cause: Option<String>,
    /// Gets new connections, when the agent says so.
    pub new_connections: Option<bool>,
    /// Seconds until it is gone; 0 when that is due. None for no deadline.
    pub gone_in: Option<u64>,
    /// Flows it has.
    pub flows: u64,
}

/// Flows by endpoint id.
type FlowCounts = BTreeMap<u32, u64>;
/// What map `drains` knows of the life that goes on at an address.
type Pinned<'a> = BTreeMap<(FrontendKey<V4>, SocketAddr), &'a DrainRecord>;

/// Reads and prints.
pub fn run(args: &EndpointsArgs) -> Result<String, ReadError> {
    let sources = Sources::open(&args.read)?;
    let wanted = Wanted::parse(args.service.as_deref(), &sources.agent)?;
    let mut flows = FlowCounts::new();
    sources.maps.for_each_flow(|_, flow| {
        if Kind::from_u8(flow.kind) != Kind::NatReply {
            *flows.entry(flow.endpoint).or_default() += 1;
        }
    })?;
    let kernel = Kernel {
        frontends: &sources.maps.frontends()?,
        endpoints: &sources.maps.endpoints()?,
        // Another build's agent may not have that map; its deadlines are then not known here.
        drains: &sources.maps.drains().unwrap_or_default(),
        flows: &flows,
        now: sources.clocks.boot,
    };
    let view = kernel.view(sources.state.as_ref(), sources.agent, &wanted);
    match (&wanted, &args.service) {
        (Wanted::Service(_), Some(name)) if view.endpoints.is_empty() => {
            Err(ReadError::NoSuchService(name.clone()))
        }
        _ => render(&view, args.read.output),
    }
}

struct Kernel<'a> {
    frontends: &'a KernelFrontends,
    endpoints: &'a KernelEndpoints,
    drains: &'a [DrainRecord],
    flows: &'a FlowCounts,
    now: Duration,
}

impl Kernel<'_> {
    fn view(
        &self,
        state: Option<&StateSnapshot>,
        agent: AgentLine,
        wanted: &Wanted,
    ) -> EndpointsView {
        let (names, pinned) = (Names::of(state), self.pinned());
        let row = |id: &u32| self.row(*id, &names, &pinned, wanted);
        let mut rows: Vec<_> = self.endpoints.keys().filter_map(row).collect();
        rows.sort_by(|a, b| {
            let left = (&a.service, &a.frontend, a.address, a.id);
            left.cmp(&(&b.service, &b.frontend, b.address, b.id))
        });
        EndpointsView {
            agent,
            endpoints: rows,
        }
    }

    /// The latest life at each address that is not over.
    fn pinned(&self) -> Pinned<'_> {
        let mut pinned = Pinned::new();
        for record in self
            .drains
            .iter()
            .filter(|record| record.state != EndpointState::Gone)
        {
            let Ok((key, _)) = record.to_map() else {
                continue;
            };
            let latest = pinned
                .entry((key.frontend, record.endpoint.address))
                .or_insert(record);
            if latest.endpoint.incarnation < record.endpoint.incarnation {
                *latest = record;
            }
        }
        pinned
    }

    fn row(
        &self,
        id: u32,
        names: &Names<'_>,
        pinned: &Pinned<'_>,
        wanted: &Wanted,
    ) -> Option<EndpointRow> {
        let endpoint = self.endpoints.get(&id)?;
        let address = SocketAddr::V4(SocketAddrV4::new(endpoint.address.into(), endpoint.port));
        let key = self.frontends.get(&endpoint.frontend).map(|(key, _)| key);
        let frontend = key.and_then(|key| names.find(key));
        let service = frontend.map(|frontend| frontend.service.clone());
        let meant = match key {
            Some(key) => wanted.matches(key, service.as_deref().unwrap_or_default()),
            None => *wanted == Wanted::Everything,
        };
        if !meant {
            return None;
        }
        let entry = frontend
            .and_then(|frontend| frontend.endpoints.iter().find(|entry| entry.id == Some(id)));
        let plane = State::from_u8(endpoint.state);
        let deadline = match entry {
            Some(entry) => entry.deadline.map(Duration::from_nanos),
            None if plane == State::Gone => None,
            None => key.and_then(|key| pinned.get(&(*key, address))?.deadline),
        };
        let say = |text: fn(&EndpointStateEntry) -> &String| entry.map(text).cloned();
        Some(EndpointRow {
            service,
            frontend: key.map_or_else(|| format!("frontend {}", endpoint.frontend), frontend_name),
            address,
            id,
            node: entry.and_then(|entry| entry.node.clone()),
            via: match Kind::from_u8(endpoint.via) {
                Kind::Local => "local",
                Kind::Nat | Kind::NatReply => "nat",
            },
            state: say(|entry| &entry.state).unwrap_or_else(|| word(plane).to_owned()),
            cause: say(|entry| &entry.cause),
            new_connections: entry.map(|entry| entry.new_connections),
            gone_in: deadline.map(|at| at.saturating_sub(self.now).as_secs()),
            flows: self.flows.get(&id).copied().unwrap_or_default(),
        })
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Unused => "unused",
        State::Active => "active",
        State::Draining => "draining",
        State::Gone => "gone",
    }
}

impl Tabular for EndpointsView {
    fn table(&self) -> String {
        let rows = self.endpoints.iter().map(|row| {
            let new = row
                .new_connections
                .map_or("-", |new| if new { "yes" } else { "no" });
            [
                dash(row.service.as_deref().unwrap_or_default()),
                row.frontend.clone(),
                row.address.to_string(),
                row.via.to_owned(),
                row.state.clone(),
                dash(row.cause.as_deref().unwrap_or_default()),
                new.to_owned(),
                row.gone_in.map_or_else(|| "-".to_owned(), age),
                row.flows.to_string(),
            ]
        });
        let header = [
            "SERVICE", "FRONTEND", "ENDPOINT", "VIA", "STATE", "CAUSE", "NEW", "GONE IN", "FLOWS",
        ];
        self.agent.warning() + &columns(header, rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::services::tests::{agent, kernel};
    use super::*;
    use crate::desired::{self, Protocol, Via};
    use crate::observe::state::FrontendState;
    use crate::timer::drain::EndpointRef;

    const NOW: Duration = Duration::from_secs(100);

    fn pinned(deadline: Duration) -> DrainRecord {
        let frontend = desired::FrontendKey {
            address: [192, 0, 2, 10].into(),
            port: 80,
            protocol: Protocol::Tcp,
        };
        let address = SocketAddr::from(([10, 0, 0, 2], 8080));
        let endpoint = EndpointRef {
            frontend,
            address,
            incarnation: 3,
        };
        let mut record = DrainRecord::of_unrecorded(endpoint, Via::Local, NOW);
        record.state = EndpointState::Draining;
        record.deadline = Some(deadline);
        record
    }

    fn shown(state: Option<&StateSnapshot>, wanted: &Wanted) -> Vec<Vec<String>> {
        let (frontends, endpoints) = kernel();
        let kernel = Kernel {
            frontends: &frontends,
            endpoints: &endpoints,
            drains: &[pinned(NOW + Duration::from_secs(42))],
            flows: &BTreeMap::from([(12, 3)]),
            now: NOW,
        };
        let table = kernel.view(state, agent(true), wanted).table();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        table.lines().skip(1).map(words).collect()
    }

    #[test]
    fn without_an_agent_the_pinned_deadline_is_shown() {
        let rows = shown(None, &Wanted::Everything);
        assert_eq!(rows.len(), 3);
        let draining = "- 192.0.2.10:80/TCP 10.0.0.2:8080 local draining - - 42s 3";
        assert_eq!(rows[1].join(" "), draining);
        assert_eq!(rows[2][4..], ["gone", "-", "-", "-", "0"]);
    }

    #[test]
    fn with_an_agent_its_words_are_shown() {
        let entry = EndpointStateEntry {
            id: Some(11),
            state: "unready".into(),
            cause: "not_ready".into(),
            ..Default::default()
        };
        let frontend = FrontendState {
            service: "shop/web".into(),
            address: Some([192, 0, 2, 10].into()),
            port: 80,
            protocol: "TCP".into(),
            endpoints: vec![entry],
            ..Default::default()
        };
        let state = StateSnapshot {
            frontends: vec![frontend],
            ..Default::default()
        };
        let rows = shown(Some(&state), &Wanted::Service("web".into()));
        assert_eq!(rows.len(), 3);
        let unready = "shop/web 192.0.2.10:80/TCP 10.0.0.1:8080 local unready not_ready no - 0";
        assert_eq!(rows[0].join(" "), unready);
        assert!(shown(Some(&state), &Wanted::Vip([192, 0, 2, 11].into(), None)).is_empty());
    }
}
