//! `deploy/` against the source: the CRD is the type's, the rights are those that are used and no
//! more, and the pod has what the agent is written for.
//!
//! After a change of the type `SLUICE_WRITE=1 cargo test -p lb-userspace --test deploy` writes the
//! CRD anew.

mod yaml;

use std::collections::BTreeSet;
use std::fs;

use kube::CustomResourceExt as _;
use lb_common::limits;
use lb_userspace::cli::Cli;
use lb_userspace::watch::crd::AddressPool;
use lb_userspace::watch::kubernetes::RIGHTS;
use serde_json::{Value, json};

use yaml::{all, base, kustomization, object, path, strings};

#[test]
fn the_crd_is_that_of_the_type() {
    let file = path("base/crd.yaml");
    let expected = serde_json::to_value(AddressPool::crd()).expect("serializable");
    if std::env::var_os("SLUICE_WRITE").is_some() {
        let text = serde_saphyr::to_string(&expected).expect("YAML");
        fs::write(
            &file,
            format!("# Written from the type, watch/crd.rs.\n{text}"),
        )
        .expect("written");
    }
    let found = object(&base(), "CustomResourceDefinition");
    assert_eq!(found, expected, "SLUICE_WRITE=1 writes it anew");
}

#[test]
fn the_role_has_the_rights_that_are_used_and_no_other() {
    let role = object(&base(), "ClusterRole");
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        let rule_keys: BTreeSet<_> = rule.as_object().expect("a rule").keys().collect();
        let expected = ["apiGroups", "resources", "verbs"].map(str::to_owned);
        assert_eq!(rule_keys, expected.iter().collect());
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    let right = (group.clone(), resource.clone(), verb);
                    assert!(granted.insert(right.clone()), "twice: {right:?}");
                }
            }
        }
    }
    let used = RIGHTS.iter().flat_map(|rights| {
        let one = |verb: &&str| {
            let words = [rights.group, rights.resource, *verb];
            words.map(str::to_owned).into()
        };
        rights.verbs.iter().map(one).collect::<Vec<_>>()
    });
    assert_eq!(granted, used.collect());
}

#[test]
fn the_role_is_bound_to_the_account_of_the_pod() {
    let all = base();
    let binding = object(&all, "ClusterRoleBinding");
    let account = object(&all, "ServiceAccount");
    let pod = &object(&all, "DaemonSet")["spec"]["template"]["spec"];
    let (name, namespace) = (
        &account["metadata"]["name"],
        &account["metadata"]["namespace"],
    );
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    assert_eq!(binding["subjects"], json!([subject]));
    assert_eq!(
        binding["roleRef"]["name"],
        object(&all, "ClusterRole")["metadata"]["name"]
    );
    assert_eq!(&pod["serviceAccountName"], name);
    assert_eq!(pod["automountServiceAccountToken"], true);
    let kinds = ["Namespace", "ServiceAccount", "DaemonSet"];
    let namespaces = kinds.map(|kind| {
        let meta = &object(&all, kind)["metadata"];
        meta[if kind == "Namespace" {
            "name"
        } else {
            "namespace"
        }]
        .clone()
    });
    assert!(namespaces.iter().all(|n| n == namespace), "{namespaces:?}");
}

#[test]
fn the_pod_may_do_what_it_needs_and_nothing_else() {
    let set = object(&base(), "DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let context = &container["securityContext"];
    assert_eq!(
        context["capabilities"],
        json!({"drop": ["ALL"], "add": ["BPF", "NET_ADMIN", "PERFMON"]})
    );
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["privileged"], Value::Null);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    for (field, expected) in [
        ("hostNetwork", json!(true)),
        ("hostPID", Value::Null),
        ("hostIPC", Value::Null),
        ("priorityClassName", json!("system-node-critical")),
        ("tolerations", json!([{"operator": "Exists"}])),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    assert_eq!(
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        1
    );
    let volumes = pod["volumes"].as_array().expect("volumes");
    let hosts: Vec<_> = volumes.iter().map(|v| &v["hostPath"]["path"]).collect();
    assert_eq!(hosts, [&json!("/sys/fs/bpf")]);
}

#[test]
fn the_maps_fit_into_the_memory_that_is_asked_for() {
    let set = object(&base(), "DaemonSet");
    let resources = &set["spec"]["template"]["spec"]["containers"][0]["resources"];
    let asked = resources["requests"]["memory"].as_str().expect("memory");
    let asked: usize = asked
        .strip_suffix("Mi")
        .expect("in Mi")
        .parse()
        .expect("a number");
    let maps = limits::MEMORY_BUDGET >> 20;
    assert!(
        asked >= maps + 128,
        "{maps} MiB of maps, and the agent itself"
    );
    assert_eq!(resources["limits"], Value::Null);
}

#[test]
fn the_agent_understands_its_arguments_and_is_asked_where_it_answers() {
    let set = object(&base(), "DaemonSet");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    // An environment variable and a flag are the same to clap: spell them as flags.
    let mut line = vec!["sluice".to_owned()];
    line.extend(strings(&container["args"]));
    let mut address = None;
    for variable in container["env"].as_array().expect("env") {
        let name = variable["name"].as_str().expect("a name");
        let flag = name.strip_prefix("SLUICE_").expect("one of ours");
        let value = variable["value"].as_str().unwrap_or("n0");
        line.push(format!(
            "--{}={value}",
            flag.to_lowercase().replace('_', "-")
        ));
        if flag == "METRICS_ADDRESS" {
            address = Some(value.to_owned());
        }
    }
    let parsed = <Cli as clap::Parser>::try_parse_from(&line);
    parsed.unwrap_or_else(|error| panic!("{line:?}: {error}"));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        let asked = format!("{}:{}", get["host"].as_str().expect("a host"), get["port"]);
        assert_eq!(Some(asked), address, "{probe}");
        assert_eq!(get["path"], path);
    }
}

#[test]
fn what_removes_it_reaches_the_same_nodes_by_the_same_image_and_may_do_less() {
    let (agent, remover) = (base(), all("uninstall"));
    let images = |folder| kustomization(folder)["images"].clone();
    assert_eq!(images("uninstall"), images("base"));
    assert_eq!(images("base")[0]["newTag"], env!("CARGO_PKG_VERSION"));
    let pod = |all: &[Value]| object(all, "DaemonSet")["spec"]["template"]["spec"].clone();
    let (agent_pod, pod) = (pod(&agent), pod(&remover));
    for field in [
        "hostNetwork",
        "tolerations",
        "priorityClassName",
        "nodeSelector",
    ] {
        assert_eq!(pod[field], agent_pod[field], "{field}");
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    let namespace = |all: &[Value]| object(all, "DaemonSet")["metadata"]["namespace"].clone();
    assert_eq!(namespace(&remover), namespace(&agent));
    let containers = |kind: &str| pod[kind].as_array().expect("containers").clone();
    for container in containers("initContainers")
        .iter()
        .chain(&containers("containers"))
    {
        let mut line = vec!["sluice".to_owned()];
        line.extend(strings(&container["args"]));
        let parsed = <Cli as clap::Parser>::try_parse_from(&line);
        parsed.unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let capabilities = &container["securityContext"]["capabilities"];
        assert_eq!(
            *capabilities,
            json!({"drop": ["ALL"], "add": ["BPF", "NET_ADMIN"]})
        );
        let mounts = &container["volumeMounts"][0]["mountPath"];
        assert_eq!(mounts, "/sys/fs/bpf", "where the agent pins");
    }
}
