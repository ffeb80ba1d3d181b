//! `sluice plan` from the outside: the binary, its JSON contract and its exit status.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::{endpoint, service, slice};

fn sluice(dir: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command
        .args(["plan", "--node-name", "n1", "--manifests"])
        .arg(dir)
        .args(more);
    command.output().expect("runs")
}

fn plan(dir: &Path, more: &[&str]) -> Value {
    let output = sluice(dir, &[&["-o", "json"], more].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[test]
fn the_json_is_the_contract() {
    let dir = tempfile::tempdir().expect("directory");
    let pod = json!({"ready": true, "serving": null, "terminating": null, "nodeName": "n1"});
    let objects = [
        service(&json!({}), &json!([{"ip": "192.0.2.10"}])),
        slice("s", "IPv4", &[endpoint(&pod, &json!(["10.1.2.3"]))]),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
    ];
    let text: Vec<_> = objects.iter().map(ToString::to_string).collect();
    fs::write(dir.path().join("all.yaml"), text.join("\n---\n")).expect("written");
    let place = format!("{}:5", dir.path().join("all.yaml").display());
    let expected = json!({
        "frontends": [{
            "service": "a/web", "address": "192.0.2.10", "port": 80, "protocol": "TCP",
            "port_name": "http", "policy": "Cluster", "verdict": "forward",
            "new_connections": ["10.1.2.3:8080"],
            "endpoints": [{
                "address": "10.1.2.3:8080", "node": "n1", "local": true, "ready": true,
                "serving": true, "terminating": false, "state": "active",
            }],
        }],
        "eligible": [{"address": "192.0.2.10", "tier": "ready"}],
        "ignored": [{
            "object": "Deployment/d",
            "reason": format!(
                "{place} is of apps/v1: expected v1 Service or Node, discovery.k8s.io/v1 \
                 EndpointSlice or sluice.dev/v1alpha1 AddressPool"
            ),
        }],
    });
    assert_eq!(
        plan(dir.path(), &["--allow-addresses", "192.0.2.0/24"]),
        expected
    );
    let yaml = sluice(
        dir.path(),
        &["-o", "yaml", "--allow-addresses", "192.0.2.0/24"],
    );
    let yaml: Value = serde_saphyr::from_str(&String::from_utf8_lossy(&yaml.stdout)).expect("YAML");
    assert_eq!(yaml, expected);
    let refused = plan(dir.path(), &[]);
    assert_eq!(refused["frontends"], json!([]));
}

#[test]
fn the_examples_are_good_and_shown_as_a_table() {
    let plan = plan(&examples(), &[]);
    assert_eq!(plan["ignored"], json!([]));
    assert_eq!(
        plan["frontends"][0]["new_connections"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    let table = sluice(&examples(), &[]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    for expected in [
        "192.0.2.100 80/TCP",
        "10.1.1.11:8080",
        "n1 (here)",
        "forward",
    ] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn unparsable_yaml_is_named_by_file_and_line_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().expect("directory");
    fs::copy(examples().join("web.yaml"), dir.path().join("web.yaml")).expect("copied");
    fs::write(dir.path().join("bad.yaml"), "a: 1\nb: [\n").expect("written");
    let plan = plan(dir.path(), &[]);
    assert_eq!(plan["frontends"].as_array().map(Vec::len), Some(1));
    let object = plan["ignored"][0]["object"].as_str().expect("said");
    let file = dir.path().join("bad.yaml").display().to_string();
    assert!(
        object
            .strip_prefix(&file)
            .is_some_and(|l| [":2", ":3"].contains(&l)),
        "{object}"
    );
}

#[test]
fn services_of_others_are_shown_and_the_flags_make_them_ours() {
    let dir = tempfile::tempdir().expect("directory");
    let ingress = json!([{"ip": "192.0.2.10"}]);
    let unclassed = service(&json!({"loadBalancerClass": null}), &ingress);
    fs::write(dir.path().join("s.json"), unclassed.to_string()).expect("written");
    let allow = ["--allow-addresses", "192.0.2.0/24"];
    let without = plan(dir.path(), &allow);
    assert_eq!(without["ignored"][0]["object"], "Service/a/web");
    let reason = without["ignored"][0]["reason"].as_str().expect("reason");
    assert!(reason.contains("spec.loadBalancerClass is not set: expected sluice.dev/lb"));
    let with = plan(dir.path(), &[&allow[..], &["--default-class"]].concat());
    assert_eq!(with["frontends"].as_array().map(Vec::len), Some(1));
    let classed = service(&json!({"loadBalancerClass": "x.example/y"}), &ingress);
    fs::write(dir.path().join("s.json"), classed.to_string()).expect("written");
    let with = plan(
        dir.path(),
        &[&allow[..], &["--load-balancer-class", "x.example/y"]].concat(),
    );
    assert_eq!(with["frontends"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_prior_keeps_an_address() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"},
        "spec": {"addresses": ["192.0.2.0/24"]},
    });
    fs::write(dir.path().join("p.json"), pool.to_string()).expect("written");
    let web = service(&json!({}), &json!([]));
    fs::write(dir.path().join("s.json"), web.to_string()).expect("written");
    let address = |plan: &Value| plan["frontends"][0]["address"].clone();
    assert_eq!(address(&plan(dir.path(), &[])), "192.0.2.0");
    let prior = dir.path().join("prior");
    let write = |text: &str| fs::write(&prior, text).expect("written");
    let path = prior.display().to_string();
    write(r#"{"version":1,"services":{"a/web":["192.0.2.77"]}}"#);
    assert_eq!(
        address(&plan(dir.path(), &["--prior", &path])),
        "192.0.2.77"
    );
    for (bad, expected) in [
        ("{}", "missing field `version`"),
        (r#"{"version":2,"services":{}}"#, "version 2: expected 1"),
        (
            r#"{"version":1,"services":{"web":[]}}"#,
            "\"web\": expected namespace/name",
        ),
    ] {
        write(bad);
        let output = sluice(dir.path(), &["--prior", &path]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
    }
}

#[test]
fn a_directory_that_is_not_there_is_a_failure() {
    let output = sluice(Path::new("/nonexistent/manifests"), &[]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("cannot read the manifest directory /nonexistent/manifests"),
        "{said}"
    );
}
