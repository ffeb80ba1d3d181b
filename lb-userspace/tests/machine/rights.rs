//! The agent with the three capabilities that it needs, and with one less.

use std::time::Duration;

use lab::agent::Agent;
use lab::manifests::{Condition, Endpoint, Manifests};
use lab::raw::RawSocket;
use lab::serve::Kind;
use lab::stage::PORT;
use lab::{Lab, LabBuilder};

use crate::{binary, builder};

const NEEDED: [&str; 3] = ["bpf", "net_admin", "perfmon"];

fn wrapper(capabilities: &[&str]) -> Vec<String> {
    let set: Vec<_> = capabilities.iter().map(|name| format!("+{name}")).collect();
    let set = format!("-all,{}", set.join(","));
    [
        "setpriv".to_owned(),
        format!("--inh-caps={set}"),
        format!("--bounding-set={set}"),
        "--no-new-privs".to_owned(),
    ]
    .into()
}

fn agent(lab: &Lab, manifests: &Manifests, capabilities: &[&str]) -> Agent {
    let node = lab.node(0).netns();
    let wrapper = wrapper(capabilities);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    Agent::prepare(node, binary(), manifests.dir(), &[])
        .expect("agent")
        .under(&wrapper)
}

fn prepared(name: &str, builder: LabBuilder) -> (Lab, Manifests, Vec<lab::Proc>) {
    let lab = builder.pods(1).build().expect("lab");
    let manifests = Manifests::create(name).expect("folder");
    let vip = std::net::SocketAddrV4::new(Lab::vip(0), 80);
    let mut servers = Vec::new();
    let mut endpoints = Vec::new();
    let pods = lab.pods().map(|pod| (pod.netns(), pod.addr(), Some("n0")));
    let others = lab.lan_servers().iter();
    let others = others.map(|server| (server.netns(), server.addr(), None));
    for (ns, address, on) in pods.chain(others) {
        let uid = on.unwrap_or("lan").to_owned();
        let server = lab::drive::Server::named(&uid).kind(Kind::A).start(ns);
        servers.push(server.expect("server"));
        endpoints.push(Endpoint {
            address,
            node: on.map(str::to_owned),
            uid,
            condition: Condition::Ready,
        });
    }
    manifests.write(vip, PORT, &endpoints).expect("written");
    (lab, manifests, servers)
}

#[test]
#[ignore = "root"]
fn three_capabilities_are_enough() {
    let Some(builder) = builder("three_capabilities") else {
        return;
    };
    let (lab, manifests, _servers) = prepared("rights", builder.lan_servers(1));
    let mut agent = agent(&lab, &manifests, &NEEDED);
    let client = lab.client(0).netns();
    let wire = client.enter(|| RawSocket::open("eth0"));
    let wire = wire.expect("enters").expect("socket");
    let announced = || {
        let vip = Lab::vip(0).octets();
        let claim = |frame: &[u8]| {
            frame.len() >= 42
                && frame[12..14] == [8, 6]
                && frame[28..32] == vip
                && frame[38..42] == vip
        };
        wire.receive_where(Duration::from_secs(5), claim)
            .expect("reads")
    };
    let served = || {
        let mut options = lab::load::Options::to(std::net::SocketAddrV4::new(Lab::vip(0), 80));
        options.sources = Some(lab::load::Sources(lab.client(0).addrs().to_vec()));
        options.duration = 1.0;
        let load = lab::drive::Load::start(client, &options).expect("load");
        let report = load.finish().expect("report");
        assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
        assert_eq!(report.servers.len(), 2, "{:?}", report.servers);
    };
    agent.run().expect("ready with three capabilities");
    // A raw socket would take CAP_NET_RAW.
    assert!(announced().is_some(), "no gratuitous ARP");
    served();
    agent.kill().expect("killed");
    served();
    agent.run().expect("takes over");
    served();
    let status = agent.command(&["status", "-o", "json"]).expect("status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["interfaces"][0]["owner"], "sluice", "{status}");
    let log = agent.log();
    assert!(!log.contains("ERROR"), "{log}");

    agent.terminate().expect("ends");
    let mut words = wrapper(&NEEDED);
    let pins = agent.pins().display().to_string();
    words.push(binary().display().to_string());
    words.extend(["detach", "--pin-dir", &pins].map(str::to_owned));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let node = lab.node(0).netns();
    let said = node.run(words[0], &words[1..]).expect("detaches");
    assert!(said.contains("removed 2 links"), "{said}");
    assert!(!agent.pins().exists());
}

#[test]
#[ignore = "root"]
fn one_less_is_said_clearly() {
    let Some(builder) = builder("one_less") else {
        return;
    };
    let (lab, manifests, _servers) = prepared("rights-less", builder);
    for missing in NEEDED {
        let less: Vec<_> = NEEDED.into_iter().filter(|name| *name != missing).collect();
        let mut agent = agent(&lab, &manifests, &less);
        let refused = agent.run().expect_err(missing).to_string();
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(refused.contains(&name), "without {name}: {refused}");
    }
}
