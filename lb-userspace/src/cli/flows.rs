//! `sluice flows`: the connections and UDP exchanges that are pinned to an endpoint.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use clap::Args;
use lb_common::V4;
use lb_common::abi::{
    Flow, FlowKey, Kind, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_GONE, STATE_RST,
};
use serde::Serialize;

use super::output::{
    AgentLine, Names, ReadArgs, ReadError, Sources, Tabular, Wanted, age, columns, dash, protocol,
    render,
};
use super::services::KernelFrontends;
use crate::observe::pins::Clocks;
use crate::observe::state::StateSnapshot;

/// Arguments of `sluice flows`.
#[derive(Args, Clone, Debug)]
pub struct FlowsArgs {
    /// Only of this Service (namespace/name), VIP, or VIP:port
    #[arg(long, value_name = "SERVICE")]
    pub service: Option<String>,
    /// Show at most this many; all are counted
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Where to read, how to print.
    #[command(flatten)]
    pub read: ReadArgs,
}

/// What `sluice flows` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowsView {
    /// Whether the agent could be asked.
    pub agent: AgentLine,
    /// Flows that match.
    pub total: usize,
    /// The first of them, in the table's order.
    pub flows: Vec<FlowRow>,
}

/// One connection or exchange.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRow {
    /// `namespace/name`, when the agent says so.
    pub service: Option<String>,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// The client.
    pub client: SocketAddrV4,
    /// The VIP and port.
    pub vip: SocketAddrV4,
    /// The endpoint's address.
    pub endpoint: SocketAddrV4,
    /// The endpoint's id.
    pub endpoint_id: u32,
    /// `local` or `nat`.
    pub via: &'static str,
    /// Seconds since the client's last packet, to about one second.
    pub idle: u64,
    /// `established`, `half-closed`, `closing`, `reset` or `gone`.
    pub state: &'static str,
}

/// Reads and prints.
pub fn run(args: &FlowsArgs) -> Result<String, ReadError> {
    let sources = Sources::open(&args.read)?;
    let wanted = Wanted::parse(args.service.as_deref(), &sources.agent)?;
    let meant = Meant::of(&sources.maps.frontends()?, sources.state.as_ref(), &wanted);
    if let (Wanted::Service(name), true) = (&wanted, meant.0.is_empty()) {
        return Err(ReadError::NoSuchService(name.clone()));
    }
    let mut view = FlowsView {
        agent: sources.agent,
        total: 0,
        flows: Vec::new(),
    };
    sources.maps.for_each_flow(|key, flow| {
        if let Some(row) = meant.row(key, flow, sources.clocks) {
            view.total += 1;
            if view.flows.len() < args.limit {
                view.flows.push(row);
            }
        }
    })?;
    render(&view, args.read.output)
}

/// Service by frontend id, of the frontends that are meant.
struct Meant(BTreeMap<u32, Option<String>>, Everything);

#[derive(Clone, Copy, Eq, PartialEq)]
enum Everything {
    Wanted,
    NotWanted,
}

impl Meant {
    fn of(frontends: &KernelFrontends, state: Option<&StateSnapshot>, wanted: &Wanted) -> Self {
        let names = Names::of(state);
        let meant = frontends.iter().filter_map(|(id, (key, _))| {
            let service = names.find(key).map(|frontend| frontend.service.clone());
            let name = service.as_deref().unwrap_or_default();
            wanted.matches(key, name).then_some((*id, service))
        });
        let everything = match wanted {
            Wanted::Everything => Everything::Wanted,
            Wanted::Vip(..) | Wanted::Service(_) => Everything::NotWanted,
        };
        Self(meant.collect(), everything)
    }

    fn row(&self, key: &FlowKey<V4>, flow: &Flow<V4>, clocks: Clocks) -> Option<FlowRow> {
        let via = match Kind::from_u8(flow.kind) {
            Kind::Local => "local",
            Kind::Nat => "nat",
            // The other half of a flow by full NAT.
            Kind::NatReply => return None,
        };
        // A flow outlives its frontend while the endpoint drains.
        let service = match self.0.get(&flow.frontend) {
            Some(service) => service.clone(),
            None if self.1 == Everything::Wanted => None,
            None => return None,
        };
        let socket = |address: V4, port: u16| SocketAddrV4::new(Ipv4Addr::from(address), port);
        Some(FlowRow {
            service,
            protocol: protocol(key.protocol),
            client: socket(key.src, key.ports.src.get()),
            vip: socket(key.dst, key.ports.dst.get()),
            endpoint: socket(flow.dst, flow.ports.dst.get()),
            endpoint_id: flow.endpoint,
            via,
            idle: clocks.since_tick(flow.seen),
            state: word(flow.state),
        })
    }
}

fn word(state: u8) -> &'static str {
    const BOTH: u8 = STATE_FIN_CLIENT | STATE_FIN_ENDPOINT;
    if state & STATE_GONE != 0 {
        "gone"
    } else if state & STATE_RST != 0 {
        "reset"
    } else if state & BOTH == BOTH {
        "closing"
    } else if state & BOTH != 0 {
        "half-closed"
    } else {
        "established"
    }
}

impl Tabular for FlowsView {
    fn table(&self) -> String {
        let rows = self.flows.iter().map(|row| {
            [
                dash(row.service.as_deref().unwrap_or_default()),
                row.protocol.to_owned(),
                row.client.to_string(),
                row.vip.to_string(),
                row.endpoint.to_string(),
                row.via.to_owned(),
                age(row.idle),
                row.state.to_owned(),
            ]
        });
        let header = [
            "SERVICE", "PROTOCOL", "CLIENT", "VIP", "ENDPOINT", "VIA", "IDLE", "STATE",
        ];
        let (shown, total) = (self.flows.len(), self.total);
        let rest = match total - shown {
            0 => String::new(),
            more => format!("\n{more} more; --limit {total} shows all\n"),
        };
        self.agent.warning() + &columns(header, rows.collect()) + &rest
    }
}

#[cfg(test)]
mod tests {
    use super::super::services::tests::{agent, kernel};
    use super::*;
    use lb_common::wire::l4::Ports;
    use lb_common::{Be16, Be32, Mac};

    fn flow(kind: Kind, frontend: u32, state: u8) -> (FlowKey<V4>, Flow<V4>) {
        let ports = |src, dst| Ports {
            src: Be16::new(src),
            dst: Be16::new(dst),
        };
        let (client, vip) = (V4([198, 51, 100, 7]), V4([192, 0, 2, 10]));
        let key = FlowKey::new(client, vip, ports(40_000, 80), 6);
        let flow = Flow {
            src: client,
            dst: V4([10, 0, 0, 1]),
            ports: ports(40_000, 8080),
            address_delta: 0,
            port_delta: 0,
            endpoint: 11,
            frontend,
            seen: 0,
            replied: 0,
            ack: Be32::new(0),
            ifindex: 0,
            mac: Mac::default(),
            kind: kind as u8,
            state,
        };
        (key, flow)
    }

    #[test]
    fn a_flow_is_shown_once_and_by_whom() {
        let (frontends, _) = kernel();
        let all = Meant::of(&frontends, None, &Wanted::Everything);
        let row = |names: &Meant, (key, flow): (FlowKey<V4>, Flow<V4>)| {
            names.row(&key, &flow, Clocks::default())
        };
        assert_eq!(row(&all, flow(Kind::NatReply, 1, 0)), None);
        let shown = row(&all, flow(Kind::Nat, 1, STATE_FIN_CLIENT)).expect("shown");
        let view = FlowsView {
            agent: agent(true),
            total: 3,
            flows: vec![shown],
        };
        let table = view.table();
        let words: Vec<_> = table
            .lines()
            .nth(1)
            .expect("row")
            .split_whitespace()
            .collect();
        let expected = [
            "-",
            "TCP",
            "198.51.100.7:40000",
            "192.0.2.10:80",
            "10.0.0.1:8080",
            "nat",
            "0s",
            "half-closed",
        ];
        assert_eq!(words, expected);
        assert!(table.ends_with("2 more; --limit 3 shows all\n"), "{table}");

        let other = Meant::of(
            &frontends,
            None,
            &Wanted::Vip([192, 0, 2, 10].into(), Some(443)),
        );
        assert_eq!(row(&other, flow(Kind::Local, 1, 0)), None);
        assert!(row(&other, flow(Kind::Local, 2, 0)).is_some());
        assert!(
            row(&all, flow(Kind::Local, 99, 0)).is_some(),
            "its frontend is gone already"
        );
    }

    #[test]
    fn states_have_words() {
        for (state, expected) in [
            (0, "established"),
            (STATE_FIN_ENDPOINT, "half-closed"),
            (STATE_FIN_CLIENT | STATE_FIN_ENDPOINT, "closing"),
            (STATE_FIN_CLIENT | STATE_RST, "reset"),
            (STATE_RST | STATE_GONE, "gone"),
        ] {
            assert_eq!(word(state), expected);
        }
    }
}
