//! Bad input at a running agent: it says what and where, and what was good goes on.

use lab::stage::Stage;

use crate::{builder, stage, status, traffic_goes_on, until};

#[test]
#[ignore = "root"]
fn a_file_that_cannot_be_parsed_is_named_and_its_good_past_stays() {
    let Some(builder) = builder("unparsable") else {
        return;
    };
    let stage = stage("unparsable", builder.pods(2), &[]);
    let path = stage.manifests.dir().join("web.json");
    let good = std::fs::read_to_string(&path).expect("reads");
    let new = stage.manifests.dir().join(".bad");
    std::fs::write(
        &new,
        format!("{}\nthis is : not [ json", &good[..good.len() / 2]),
    )
    .expect("writes");
    std::fs::rename(&new, &path).expect("renames");
    until("the file and a line are named", || {
        let shown = status(&stage).to_string();
        shown.contains("web.json:")
    });
    traffic_goes_on(&stage);
    stage.tell().expect("good again");
    until("nothing is wrong any more", || {
        !status(&stage).to_string().contains("web.json:")
    });
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn bad_objects_are_listed_and_the_rest_goes_on() {
    let Some(builder) = builder("bad_objects") else {
        return;
    };
    let stage = stage("bad-objects", builder.pods(2), &[]);
    let service = |name: &str, ports: &str, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: lab{more}}}\n\
             spec: {{type: LoadBalancer, loadBalancerClass: sluice.dev/lb, ports: {ports}}}\n"
        )
    };
    let asked = |address: &str| format!(", annotations: {{sluice.dev/addresses: {address}}}");
    let text = [
        service("no-ports", "[]", ""),
        service("port-zero", "[{port: 0}]", ""),
        service("too-high", "[{port: 65536}]", ""),
        service("outside", "[{port: 80}]", &asked("203.0.113.1")),
        service("taken", "[{port: 80}]", &asked(&stage.vip.ip().to_string())),
        "---\napiVersion: sluice.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: backwards}\n\
         spec: {addresses: [\"192.0.2.99-192.0.2.90\"]}\n".to_owned(),
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: fqdn, namespace: lab, \
         labels: {kubernetes.io/service-name: web}}\naddressType: FQDN\nports: []\n\
         endpoints: [{addresses: [example.org]}]\n".to_owned(),
    ]
    .concat();
    std::fs::write(stage.manifests.dir().join("odd.yaml"), text).expect("writes");
    for name in [
        "no-ports",
        "port-zero",
        "too-high",
        "outside",
        "taken",
        "backwards",
        "fqdn",
    ] {
        until(name, || {
            status(&stage)["ignored"].to_string().contains(name) && stage.agent.log().contains(name)
        });
    }
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn what_finds_no_room_is_named_makes_the_node_unready_and_comes_in_later() {
    let Some(builder) = builder("no_room") else {
        return;
    };
    let stage = stage("no-room", builder.pods(1), &[]);
    let dir = stage.manifests.dir();
    let pool = "apiVersion: sluice.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: wide}\n\
                spec: {addresses: [192.0.2.65-192.0.2.66]}\n";
    std::fs::write(dir.join("pool.yaml"), pool).expect("written");
    // Two thirds of the map's room each.
    let ranges: Vec<_> = (0..43_000u32)
        .map(|n| format!("{}/32", std::net::Ipv4Addr::from(0x0a00_0000 + n)))
        .collect();
    let wide = |name: &str, address: &str| {
        let service = serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "lab",
                         "annotations": {"sluice.dev/addresses": address}},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
                     "loadBalancerSourceRanges": ranges, "ports": [{"port": 80}]},
        });
        let new = dir.join(".new");
        std::fs::write(&new, service.to_string()).expect("written");
        std::fs::rename(&new, dir.join(format!("{name}.json"))).expect("renamed");
    };
    let readiness = || stage.agent.get("/readyz").expect("answers");
    wide("first", "192.0.2.65");
    until("the first is in", || {
        let services = stage.agent.command(&["services"]).expect("services");
        services.contains("lab/first") && readiness().starts_with("HTTP/1.1 200")
    });
    wide("second", "192.0.2.66");
    until("what was left out is named", || {
        readiness().contains("map source_ranges is full, left out: Service/lab/second")
    });
    assert!(readiness().starts_with("HTTP/1.1 503"));
    let shown = status(&stage)["ignored"].to_string();
    assert!(
        shown.contains("Service/lab/second") && !shown.contains("lab/first"),
        "{shown}"
    );
    traffic_goes_on(&stage);
    std::fs::remove_file(dir.join("first.json")).expect("removed");
    until("there is room for the second", || {
        readiness().starts_with("HTTP/1.1 200")
    });
}

/// Runs `sluice` as nobody, who has no rights at all.
fn as_nobody(args: &[&str]) -> Option<std::process::Output> {
    if !nix::unistd::geteuid().is_root() {
        // setpriv cannot become somebody else, and whoever this is has no rights either.
        return None;
    }
    let out = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(crate::binary())
        .args(args)
        .output();
    Some(out.expect("setpriv of util-linux"))
}

fn said(out: &std::process::Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
#[ignore = "root"]
fn without_root_everything_says_what_is_missing() {
    let Some(builder) = builder("without_root") else {
        return;
    };
    let stage = stage("without-root", builder.pods(1), &[]);
    let pins = stage.agent.pins().display().to_string();
    let flags = [
        "--node-name=n0",
        "--interface=lo",
        "--metrics-address=127.0.0.1:0",
    ];
    let agent: Vec<_> = ["agent", "--manifests=/"]
        .into_iter()
        .chain(flags)
        .collect();
    let out = as_nobody(&agent).expect("root");
    assert!(!out.status.success());
    let wanted = "missing CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON: run as root";
    assert!(said(&out).contains(wanted), "{}", said(&out));
    for command in ["status", "services", "endpoints", "flows", "detach"] {
        let out = as_nobody(&[command, "--pin-dir", &pins]).expect("root");
        assert!(!out.status.success(), "{command}");
        let said = said(&out);
        assert!(
            said.contains(&pins) && said.contains("root"),
            "{command}: {said}"
        );
        let out = std::process::Command::new(crate::binary())
            .args([command, "--pin-dir", "/sys/fs/bpf/no-such-pins"])
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        // Nothing to detach is no fault.
        assert_eq!(
            out.status.success(),
            command == "detach",
            "{command}: {said}"
        );
        assert!(
            command == "detach" || said.contains("/sys/fs/bpf/no-such-pins"),
            "{said}"
        );
    }
}

#[test]
#[ignore = "root"]
fn a_missing_bpf_filesystem_is_mounted_or_said() {
    let Some(builder) = builder("no_bpffs") else {
        return;
    };
    let mut stage = stage("no-bpffs", builder.pods(1), &[]);
    stage.agent.terminate().expect("ends");
    stage.agent.command(&["detach"]).expect("detaches");
    let without = ["unshare", "--mount", "--propagation=private", "sh", "-c"];
    let with_rights = [&without[..], &["umount /sys/fs/bpf && exec \"$0\" \"$@\""]].concat();
    let few = "umount /sys/fs/bpf && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$0\" \"$@\"";
    let without_rights = [&without[..], &[few]].concat();
    stage.agent.set_wrapper(&without_rights);
    let refused = stage.agent.run().expect_err("may not mount").to_string();
    assert!(
        refused.contains("mount -t bpf bpf /sys/fs/bpf"),
        "{refused}"
    );
    stage.agent.set_wrapper(&with_rights);
    stage.agent.run().expect("mounts it");
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn what_stands_in_the_way_of_a_start_is_named() {
    let Some(builder) = builder("no_start") else {
        return;
    };
    let mut stage = stage("no-start", builder.pods(1), &[]);
    let refused = |stage: &mut Stage, flags: &[&str]| {
        stage.agent.set_more(flags);
        let refused = stage.agent.run().expect_err("refused").to_string();
        traffic_goes_on(stage);
        refused
    };
    stage.agent.terminate().expect("ends");
    let node = stage.lab.node(0).netns();
    let listener = node.enter(|| std::net::TcpListener::bind("127.0.0.1:9095"));
    let listener = listener.expect("enters").expect("listens");
    let said = refused(&mut stage, &[]);
    drop(listener);
    assert!(
        said.contains("127.0.0.1:9095 (--metrics-address)"),
        "{said}"
    );
    let allocations = stage.manifests.dir().join(".allocations");
    let good = std::fs::read(&allocations).expect("allocations");
    std::fs::write(&allocations, "{").expect("written");
    let said = refused(&mut stage, &[]);
    assert!(said.contains(&allocations.display().to_string()), "{said}");
    std::fs::write(&allocations, good).expect("written");
    let said = refused(&mut stage, &["--metrics-address=everywhere"]);
    assert!(said.contains("everywhere"), "{said}");
    stage.agent.set_more(&[]);
    stage.agent.run().expect("starts");
}
