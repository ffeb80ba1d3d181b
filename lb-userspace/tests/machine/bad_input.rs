//! Bad input at a running agent: it says what and where, and what was good goes on.

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
            status(&stage)["ignored"].to_string().contains(name)
        });
    }
    traffic_goes_on(&stage);
}

#[test]
fn without_root_the_agent_says_what_is_missing() {
    let out = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(crate::binary())
        .args([
            "agent",
            "--manifests",
            "/",
            "--node-name",
            "n0",
            "--interface",
            "lo",
        ])
        .args(["--metrics-address", "127.0.0.1:0"])
        .output();
    let Ok(out) = out else { return };
    if !nix::unistd::geteuid().is_root() {
        // setpriv cannot become somebody else; the agent itself has no rights here either.
        return;
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success());
    assert!(said.contains("CAP_") || said.contains("root"), "{said}");
}
