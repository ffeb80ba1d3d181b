//! The reading subcommands on real pinned maps, without an agent.

use std::path::PathBuf;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::util::nr_cpus;
use lb_common::abi::{
    Conflict, Counter, DrainKey, DrainValue, Endpoint, Flow, FlowKey, Frontend, FrontendKey, Kind,
    State, Vip,
};
use lb_common::wire::l4::Ports;
use lb_common::{Be16, Be32, Mac, Reason, V4};

use clap::CommandFactory as _;

use crate::load;

use super::output::{Format, ReadArgs};
use super::{Cli, endpoints, flows, services, status};

const VIP: V4 = V4([192, 0, 2, 10]);
const POD: V4 = V4([10, 0, 0, 1]);
const KEY: FrontendKey<V4> = FrontendKey {
    address: VIP,
    port: 80,
    protocol: 6,
    zero: 0,
};

#[test]
fn every_flag_that_operators_are_told_of_is_there() {
    let known: Vec<String> = Cli::command()
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| argument.get_long().map(|name| format!("--{name}")))
        .collect();
    let text = include_str!("../../../docs/operations.md");
    let told = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.starts_with("--"));
    let told: Vec<_> = told
        .filter_map(|code| code.split([' ', '=']).next())
        .collect();
    assert!(told.len() > 8, "{told:?}");
    for flag in told {
        assert!(known.iter().any(|name| name == flag), "{flag}");
    }
}

/// A pin directory of its own, removed with all pins.
struct Pins(load::Pins);

impl Pins {
    fn new() -> Self {
        Self(crate::testing::pins("cli"))
    }

    fn pin(&self, name: &str) -> PathBuf {
        self.0.map(name)
    }

    fn hash<K: aya::Pod, V: aya::Pod>(&self, name: &str, entries: &[(K, V)]) {
        let mut map: HashMap<MapData, K, V> = HashMap::create(1024, 0).expect("map");
        for (key, value) in entries {
            map.insert(key, value, 0).expect("room");
        }
        map.pin(self.pin(name)).expect("bpffs");
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.root());
    }
}

fn flow() -> (FlowKey<V4>, Flow<V4>) {
    let ports = |src, dst| Ports {
        src: Be16::new(src),
        dst: Be16::new(dst),
    };
    let client = V4([198, 51, 100, 7]);
    let flow = Flow {
        src: client,
        dst: POD,
        ports: ports(40_000, 8080),
        address_delta: 0,
        port_delta: 0,
        endpoint: 5,
        frontend: 1,
        seen: 0,
        replied: 0,
        ack: Be32::new(0),
        ifindex: 0,
        mac: Mac::default(),
        kind: Kind::Local as u8,
        state: 0,
    };
    (FlowKey::new(client, VIP, ports(40_000, 80), 6), flow)
}

fn fill(pins: &Pins) {
    let frontend = Frontend {
        id: 1,
        ..Default::default()
    };
    pins.hash("frontends", &[(KEY, frontend)]);
    pins.hash(
        "vips",
        &[(
            VIP,
            Vip {
                answer_until: u64::MAX,
                ..Default::default()
            },
        )],
    );
    pins.hash(
        "conflicts",
        &[(
            VIP,
            Conflict {
                count: 2,
                ..Default::default()
            },
        )],
    );
    pins.hash("flows", &[flow()]);
    let drain = DrainKey {
        frontend: KEY,
        address: POD,
        port: 8080,
        zero: 0,
        incarnation: 1,
    };
    let deadline = u64::MAX / 2;
    let value = DrainValue {
        deadline,
        state: State::Draining as u8,
        ..Default::default()
    };
    pins.hash("drains", &[(drain, value)]);
    for name in [
        "affinity",
        "answered",
        "handshakes",
        "reverse",
        "source_ranges",
    ] {
        pins.hash::<u32, u32>(name, &[]);
    }
    let mut slots: Array<MapData, Endpoint<V4>> = Array::create(4096, 0).expect("map");
    let state = State::Draining as u8;
    let pod = Endpoint {
        address: POD,
        port: 8080,
        state,
        frontend: 1,
        ..Default::default()
    };
    slots.set(5, pod, 0).expect("slot");
    slots.pin(pins.pin("endpoints")).expect("bpffs");
    let mut counters: PerCpuArray<MapData, Counter> =
        PerCpuArray::create(Reason::COUNT as u32, 0).expect("map");
    let cpus = nr_cpus().expect("CPUs");
    let one = Counter {
        packets: 3,
        bytes: 300,
    };
    let values = aya::maps::PerCpuValues::try_from(vec![one; cpus]).expect("one per CPU");
    counters
        .set(Reason::FlowLocal as u32, values, 0)
        .expect("slot");
    counters.pin(pins.pin("counters")).expect("bpffs");
}

#[test]
#[ignore = "needs the right to make maps"]
fn what_is_pinned_is_shown() {
    let pins = Pins::new();
    fill(&pins);
    let read = |output| ReadArgs {
        pin_dir: pins.0.root().to_owned(),
        // The discard port: nobody answers.
        agent: ([127, 0, 0, 1], 9).into(),
        output,
    };
    let words = |text: &str, line: usize| {
        let line = text.lines().nth(line).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };

    let text = services::run(&services::ServicesArgs {
        read: read(Format::Table),
    })
    .expect("text");
    assert_eq!(
        words(&text, 4),
        "- 192.0.2.10:80/TCP - forward 0 1 0",
        "{text}"
    );

    let service = Some("192.0.2.10:80".to_owned());
    let args = endpoints::EndpointsArgs {
        service,
        read: read(Format::Table),
    };
    let text = endpoints::run(&args).expect("text");
    let row = words(&text, 4);
    assert!(
        row.starts_with("- 192.0.2.10:80/TCP 10.0.0.1:8080 local draining - - "),
        "{text}"
    );
    assert!(
        row.ends_with("d 1"),
        "a deadline far away, one flow: {text}"
    );

    let args = flows::FlowsArgs {
        service: None,
        limit: 10,
        read: read(Format::Table),
    };
    let text = flows::run(&args).expect("text");
    assert!(words(&text, 4).starts_with("- TCP 198.51.100.7:40000 192.0.2.10:80 10.0.0.1:8080"));

    let text = status::run(&status::StatusArgs {
        read: read(Format::Json),
    })
    .expect("text");
    let json: serde_json::Value = serde_json::from_str(&text).expect("own output");
    assert_eq!(json["agent"]["running"], false);
    assert_eq!(json["conflicts"][0]["count"], 2);
    let cpus = nr_cpus().expect("CPUs");
    let reasons = json["reasons"].as_array().expect("list");
    let local = reasons
        .iter()
        .find(|row| row["reason"] == "flow_local")
        .expect("every reason");
    assert_eq!(local["packets"], 3 * cpus);
    let maps = json["maps"].as_array().expect("list");
    let used = |name: &str| {
        let map = maps.iter().find(|fill| fill["map"] == name);
        map.and_then(|fill| fill["entries"].as_u64())
    };
    let fills = ["flows", "endpoints", "drains", "reverse"].map(used);
    assert_eq!(fills, [Some(1), Some(1), Some(1), Some(0)]);
}
