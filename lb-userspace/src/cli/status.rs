//! `sluice status`: is the data plane attached, how full are its maps, what does it do with
//! packets, and does the agent live?

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use clap::Args;
use lb_common::abi::{Conflict, Counter};
use lb_common::{Reason, V4};
use serde::Serialize;

use super::output::{AgentLine, ReadArgs, ReadError, Sources, Tabular, age, columns, dash, render};
use crate::observe::counters::CounterSource as _;
use crate::observe::health::Readiness;
use crate::observe::links::{XdpLink, xdp_links};
use crate::observe::pins::Clocks;
use crate::observe::state::{EGRESS_ONLY, IgnoredObject, MapFill, PendingWrite, StateSnapshot};

/// Arguments of `sluice status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Where to read, how to print.
    #[command(flatten)]
    pub read: ReadArgs,
}

/// What `sluice status` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusView {
    /// Whether the agent could be asked.
    pub agent: AgentLine,
    /// The agent's version.
    pub version: Option<String>,
    /// The node's name.
    pub node: Option<String>,
    /// Whether the node is ready, when the agent says so.
    pub readiness: Option<Readiness>,
    /// Interfaces with an XDP program, and those that the agent was told to use.
    pub interfaces: Vec<InterfaceRow>,
    /// Loaded programs that use the pinned maps, by id. Empty without the right to list them.
    pub programs: BTreeMap<u32, String>,
    /// Fill levels.
    pub maps: Vec<MapFill>,
    /// Every reason, also those that never happened.
    pub reasons: Vec<ReasonRow>,
    /// VIPs that somebody else claims.
    pub conflicts: Vec<ConflictRow>,
    /// Writes being retried.
    pub pending: Vec<PendingWrite>,
    /// Objects left out.
    pub ignored: Vec<IgnoredObject>,
}

/// One interface.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InterfaceRow {
    /// Its name.
    pub name: String,
    /// `native`, `generic`, `offload`, `several`, `egress only`; none while nothing is attached.
    pub mode: Option<String>,
    /// Id of the XDP program.
    pub xdp: Option<u32>,
    /// Id of the egress program, when the agent says so.
    pub egress: Option<u32>,
    /// Whose program it is: `sluice`, `another`, or `unknown` without the right to look.
    pub owner: &'static str,
    /// What the agent has to say about it.
    pub notes: Vec<String>,
}

/// Packets of one reason.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ReasonRow {
    /// See `docs/reasons.md`.
    pub reason: &'static str,
    /// `pass`, `transmit`, `redirect` or `drop`.
    pub outcome: &'static str,
    /// Packets since the maps were made.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Somebody else's claim to a VIP.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ConflictRow {
    /// The VIP.
    pub vip: Ipv4Addr,
    /// Hardware address that claimed it last.
    pub mac: String,
    /// Claims heard.
    pub count: u32,
    /// Seconds since the last.
    pub seconds_ago: u64,
}

/// Reads and prints.
pub fn run(args: &StatusArgs) -> Result<String, ReadError> {
    let sources = Sources::open(&args.read)?;
    let kernel = Kernel {
        links: xdp_links()?,
        programs: sources.maps.programs()?,
        fills: sources.maps.fills()?,
        counters: sources.maps.counters()?.read()?,
        conflicts: sources.maps.conflicts()?,
        clocks: sources.clocks,
    };
    render(
        &view(kernel, sources.state, sources.agent),
        args.read.output,
    )
}

struct Kernel {
    links: Vec<XdpLink>,
    programs: BTreeMap<u32, String>,
    fills: Vec<MapFill>,
    counters: Vec<Counter>,
    conflicts: Vec<(V4, Conflict)>,
    clocks: Clocks,
}

fn view(kernel: Kernel, state: Option<StateSnapshot>, agent: AgentLine) -> StatusView {
    let running = state.is_some();
    let state = state.unwrap_or_default();
    let mut maps = kernel.fills;
    // Only the agent knows how much of `tables` is taken.
    maps.extend(
        state
            .maps
            .iter()
            .filter(|fill| fill.map == "tables")
            .cloned(),
    );
    let interfaces = interfaces(&kernel.links, &kernel.programs, &state);
    let reasons = Reason::ALL
        .iter()
        .zip(&kernel.counters)
        .map(|(reason, counter)| ReasonRow {
            reason: reason.as_str(),
            outcome: reason.outcome().as_str(),
            packets: counter.packets,
            bytes: counter.bytes,
        });
    let conflicts = kernel.conflicts.iter().map(|(vip, conflict)| ConflictRow {
        vip: Ipv4Addr::from(*vip),
        mac: mac(conflict.mac.0),
        count: conflict.count,
        seconds_ago: kernel.clocks.since_tick(conflict.seen),
    });
    StatusView {
        agent,
        version: running.then_some(state.version),
        node: running.then_some(state.node),
        readiness: running.then_some(state.readiness),
        interfaces,
        programs: kernel.programs,
        maps,
        reasons: reasons.collect(),
        conflicts: conflicts.collect(),
        pending: state.pending,
        ignored: state.ignored,
    }
}

fn interfaces(
    links: &[XdpLink],
    programs: &BTreeMap<u32, String>,
    state: &StateSnapshot,
) -> Vec<InterfaceRow> {
    let known = |name: &str| {
        state
            .interfaces
            .iter()
            .find(|interface| interface.name == name)
    };
    let mut rows: Vec<_> = links
        .iter()
        .map(|link| InterfaceRow {
            name: link.name.clone(),
            mode: Some(link.mode.to_owned()),
            xdp: Some(link.program),
            egress: known(&link.name).and_then(|interface| interface.egress),
            owner: match programs.is_empty() {
                true => "unknown",
                false if programs.contains_key(&link.program) => "sluice",
                false => "another",
            },
            notes: known(&link.name)
                .map(|i| i.notes.clone())
                .unwrap_or_default(),
        })
        .collect();
    let attached = |name: &str| links.iter().any(|link| link.name == name);
    rows.extend(
        state
            .interfaces
            .iter()
            .filter(|interface| !attached(&interface.name))
            .map(|interface| InterfaceRow {
                name: interface.name.clone(),
                mode: (interface.mode == EGRESS_ONLY).then(|| EGRESS_ONLY.to_owned()),
                xdp: None,
                egress: interface.egress,
                owner: "-",
                notes: interface.notes.clone(),
            }),
    );
    rows
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Tabular for StatusView {
    fn table(&self) -> String {
        let mut text = self.head();
        text += &self.interface_table();
        let rows = self.maps.iter().map(|fill| {
            let percent = (fill.entries * 100)
                .checked_div(fill.capacity)
                .unwrap_or_default();
            [
                fill.map.clone(),
                fill.entries.to_string(),
                fill.capacity.to_string(),
                format!("{percent}%"),
            ]
        });
        text += &section(&columns(
            ["MAP", "ENTRIES", "CAPACITY", "FULL"],
            rows.collect(),
        ));
        let seen = self
            .reasons
            .iter()
            .filter(|row| row.packets > 0)
            .map(|row| {
                let (packets, bytes) = (row.packets.to_string(), row.bytes.to_string());
                [
                    row.reason.to_owned(),
                    row.outcome.to_owned(),
                    packets,
                    bytes,
                ]
            });
        text += &section(&columns(
            ["REASON", "OUTCOME", "PACKETS", "BYTES"],
            seen.collect(),
        ));
        if !self.conflicts.is_empty() {
            let rows = self.conflicts.iter().map(|row| {
                let ago = age(row.seconds_ago) + " ago";
                [
                    row.vip.to_string(),
                    row.mac.clone(),
                    row.count.to_string(),
                    ago,
                ]
            });
            let header = ["VIP CLAIMED", "BY", "TIMES", "LAST"];
            text += &section(&columns(header, rows.collect()));
        }
        let pending = self.pending.iter().map(|pending| {
            let PendingWrite {
                write,
                error,
                attempts,
            } = pending;
            format!("\nfailed write ({attempts} times): {write}: {error}")
        });
        let ignored = self.ignored.iter().map(|left_out| {
            let IgnoredObject { object, reason } = left_out;
            format!("\nignored: {object}: {reason}")
        });
        text.extend(pending.chain(ignored));
        text.trim_end().to_owned() + "\n"
    }
}

impl StatusView {
    fn head(&self) -> String {
        let Some(readiness) = &self.readiness else {
            return self.agent.warning();
        };
        let version = self.version.as_deref().unwrap_or("?");
        let node = self.node.as_deref().unwrap_or("?");
        let address = self.agent.address;
        format!("agent {version} on node {node}, at {address}: {readiness}\n")
    }

    fn interface_table(&self) -> String {
        if self.interfaces.is_empty() {
            return "no interface has an XDP program\n".to_owned();
        }
        let id = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        let rows = self.interfaces.iter().map(|row| {
            [
                row.name.clone(),
                row.mode
                    .clone()
                    .unwrap_or_else(|| "not attached".to_owned()),
                id(row.xdp),
                id(row.egress),
                row.owner.to_owned(),
                dash(&row.notes.join("; ")),
            ]
        });
        let header = ["INTERFACE", "MODE", "XDP", "EGRESS", "WHOSE", "NOTES"];
        columns(header, rows.collect())
    }
}

fn section(text: &str) -> String {
    format!("\n{text}")
}

#[cfg(test)]
mod tests {
    use super::super::output::Format;
    use super::super::services::tests::agent;
    use super::*;
    use crate::observe::state::InterfaceState;
    use lb_common::Mac;

    fn kernel() -> Kernel {
        let mut counters = vec![Counter::default(); Reason::COUNT];
        counters[Reason::FlowLocal as usize] = Counter {
            packets: 12,
            bytes: 3400,
        };
        let link = |name: &str, program| XdpLink {
            name: name.to_owned(),
            ifindex: 2,
            mode: "generic",
            program,
        };
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        Kernel {
            links: vec![link("eth0", 41), link("eth1", 7)],
            programs: BTreeMap::from([(41, "sluice_xdp".to_owned())]),
            fills: vec![MapFill {
                map: "flows".into(),
                entries: 250,
                capacity: 1000,
            }],
            counters,
            conflicts: vec![(
                V4([192, 0, 2, 10]),
                Conflict {
                    count: 3,
                    mac,
                    ..Default::default()
                },
            )],
            clocks: Clocks::default(),
        }
    }

    fn lines(text: &str) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    #[test]
    fn the_kernel_is_shown_without_an_agent() {
        let text = view(kernel(), None, agent(false)).table();
        assert!(
            text.starts_with("agent not running: connection refused"),
            "{text}"
        );
        let lines = lines(&text);
        for line in [
            "eth0 generic 41 - sluice -",
            "eth1 generic 7 - another -",
            "flows 250 1000 25%",
            "flow_local pass 12 3400",
            "192.0.2.10 02:00:00:00:00:09 3 0s ago",
        ] {
            assert!(
                lines.iter().any(|shown| shown == line),
                "{line} not in\n{text}"
            );
        }
        assert!(
            !text.contains("fragment"),
            "what never happened is left out"
        );
    }

    #[test]
    fn the_agent_adds_what_it_knows() {
        let interface = |name: &str, note: &str| InterfaceState {
            name: name.to_owned(),
            egress: Some(42),
            notes: vec![note.to_owned()],
            ..Default::default()
        };
        let state = StateSnapshot {
            version: "0.1.0".into(),
            node: "n1".into(),
            readiness: Readiness::of([]),
            interfaces: vec![
                interface("eth0", "generic: for trying out"),
                interface("eth9", "gone"),
            ],
            ignored: vec![IgnoredObject {
                object: "Service/a/b".into(),
                reason: "no port".into(),
            }],
            ..Default::default()
        };
        let view = view(kernel(), Some(state), agent(true));
        let text = view.table();
        assert!(
            text.starts_with("agent 0.1.0 on node n1, at 127.0.0.1:9095: ready\n"),
            "{text}"
        );
        let lines = lines(&text);
        assert!(lines.contains(&"eth0 generic 41 42 sluice generic: for trying out".to_owned()));
        assert!(
            lines.contains(&"eth9 not attached - 42 - gone".to_owned()),
            "{text}"
        );
        assert!(text.ends_with("ignored: Service/a/b: no port\n"), "{text}");
        let json = render(&view, Format::Json).expect("json");
        let back: serde_json::Value = serde_json::from_str(&json).expect("own output");
        assert_eq!(
            back["reasons"].as_array().map(Vec::len),
            Some(Reason::COUNT)
        );
        let yaml = render(&view, Format::Yaml).expect("yaml");
        let again: serde_json::Value = serde_saphyr::from_str(&yaml).expect("own output");
        assert_eq!(again, back);
    }
}
