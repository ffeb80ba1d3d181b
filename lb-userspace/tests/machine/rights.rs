//! The agent with the three capabilities that it needs, and with one less.

use lab::agent::Agent;
use lab::manifests::{Condition, Endpoint, Manifests};
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
    for pod in lab.pods() {
        servers.push(
            lab::drive::Server::named("pod")
                .kind(Kind::A)
                .start(pod.netns())
                .expect("server"),
        );
        endpoints.push(Endpoint {
            address: pod.addr(),
            node: Some("n0".to_owned()),
            uid: "pod".to_owned(),
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
    let (lab, manifests, _servers) = prepared("rights", builder);
    let mut agent = agent(&lab, &manifests, &NEEDED);
    agent.run().expect("ready with three capabilities");
    let mut options = lab::load::Options::to(std::net::SocketAddrV4::new(Lab::vip(0), 80));
    options.sources = Some(lab::load::Sources(lab.client(0).addrs().to_vec()));
    options.duration = 1.0;
    let load = lab::drive::Load::start(lab.client(0).netns(), &options).expect("load");
    let report = load.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
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
