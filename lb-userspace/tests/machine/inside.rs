//! Looking inside a running agent: subcommands, HTTP, maps.

use lab::report::Traffic;
use lb_common::Reason;

use crate::{builder, stage};

#[test]
#[ignore = "root"]
fn every_view_has_every_form() {
    let Some(builder) = builder("views") else {
        return;
    };
    let stage = stage("views", builder.pods(2).lan_servers(1), &[]);
    let held = stage
        .load(&stage.options(&[Traffic::Keepalive], 1, 3.0))
        .expect("load");
    std::thread::sleep(std::time::Duration::from_millis(500));
    for view in ["status", "services", "endpoints", "flows"] {
        let table = stage.agent.command(&[view]).expect(view);
        assert!(table.lines().count() > 1, "{view}: {table}");
        let json = stage.agent.command(&[view, "-o", "json"]).expect(view);
        let json: serde_json::Value = serde_json::from_str(&json).expect(view);
        let yaml = stage.agent.command(&[view, "-o", "yaml"]).expect(view);
        assert!(!json.is_null() && yaml.contains(": "), "{view}: {yaml}");
    }
    let services = stage.agent.command(&["services"]).expect("services");
    assert!(
        services.contains("lab/web") && services.contains("192.0.2.64"),
        "{services}"
    );
    let endpoints = stage.agent.command(&["endpoints"]).expect("endpoints");
    assert!(
        endpoints.contains("active") && endpoints.contains("nat"),
        "{endpoints}"
    );
    let flows = stage.agent.command(&["flows"]).expect("flows");
    assert!(flows.contains("192.0.2.64"), "{flows}");
    // As with `sluice flows | head`.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["flows", "--pin-dir"])
        .arg(stage.agent.pins())
        .stdout(writer)
        .output()
        .expect("runs");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    held.finish().expect("report");
}

#[test]
#[ignore = "root"]
fn health_and_metrics_are_served() {
    let Some(builder) = builder("http") else {
        return;
    };
    let stage = stage("http", builder.pods(1), &[]);
    for path in ["/healthz", "/readyz"] {
        let answer = stage.agent.get(path).expect(path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let metrics = stage.agent.get("/metrics").expect("metrics");
    for reason in Reason::ALL {
        let label = format!("reason=\"{}\"", reason.as_str());
        assert!(metrics.contains(&label), "no {label}");
    }
}

/// A page of the documentation.
fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    std::fs::read_to_string(path).expect(name)
}

#[test]
#[ignore = "root"]
fn every_metric_that_operators_are_told_of_is_served() {
    let Some(builder) = builder("metrics_docs") else {
        return;
    };
    let stage = stage("metrics", builder.pods(1), &[]);
    let metrics = stage.agent.get("/metrics").expect("metrics");
    let mut told = std::collections::BTreeSet::new();
    for name in ["operations.md", "reasons.md", "maps.md", "draining.md"] {
        let text = page(name);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let program = ["sluice_xdp", "sluice_egress", "sluice_xdp_frags"];
        let series = words.filter(|word| word.starts_with("sluice_") && !program.contains(word));
        told.extend(series.map(str::to_owned));
    }
    assert!(told.len() > 3, "{told:?}");
    for series in told {
        assert!(metrics.contains(&format!("\n{series}")), "no {series}");
    }
}

/// `bpftool` and its arguments, not through `ip netns exec`: that mounts /sys anew, and the pins are
/// not to be seen there.
fn shell(line: &str) -> String {
    let out = std::process::Command::new("sh")
        .args(["-c", line])
        .output()
        .expect("sh");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{line}: {text}{error}");
    text
}

#[test]
#[ignore = "root"]
fn maps_are_as_documented_and_print_the_names_of_their_fields() {
    let Some(builder) = builder("bpftool") else {
        return;
    };
    let stage = stage("bpftool", builder.pods(1).lan_servers(1), &[]);
    let held = stage
        .load(&stage.options(&[Traffic::Keepalive, Traffic::Udp], 1, 2.0))
        .expect("load");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pins = stage.agent.pins().join("v1").display().to_string();
    let docs = page("maps.md");

    let kind = |told: &str| match told {
        "LPM trie" => "lpm_trie".to_owned(),
        "LRU hash" => "lru_hash".to_owned(),
        "per-CPU array" => "percpu_array".to_owned(),
        other => other.to_owned(),
    };
    let mut documented = std::collections::BTreeSet::new();
    for row in docs.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        assert!(
            docs.contains(&format!("### `{name}`")),
            "{name} has no section"
        );
        if cells[2].ends_with(", not pinned") {
            continue;
        }
        documented.insert(name.to_owned());
        let shown = shell(&format!("bpftool -j map show pinned {pins}/maps/{name}"));
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(shown["type"], kind(cells[2]).as_str(), "{row}");
        let entries = shown["max_entries"].as_u64().expect("a number");
        match cells[3].replace(',', "").parse::<u64>() {
            Ok(told) => assert_eq!(entries, told, "{row}"),
            Err(_) => assert_eq!(cells[3], "one per reason"),
        }
        assert!(
            docs.contains(&format!("### `{name}`")),
            "{name} has no section"
        );
    }
    let pinned: std::collections::BTreeSet<_> = std::fs::read_dir(format!("{pins}/maps"))
        .expect("pins")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("name")
        })
        .collect();
    assert_eq!(pinned, documented);

    // What it says to type works, and prints names.
    let typed = docs.lines().filter(|line| line.starts_with("bpftool map"));
    let typed: Vec<_> = typed.collect();
    assert!(typed.len() > 5, "{typed:?}");
    for line in typed {
        let text = shell(&line.replace("/sys/fs/bpf/sluice/v1", &pins));
        assert!(text.contains("\": "), "{line}: {text}");
    }
    let fields = [
        (
            "frontends",
            "address port protocol id region members rows_log2 affinity verdict source_ranges",
        ),
        ("vips", "answer_until epoch"),
        ("endpoints", "address port via state ifindex incarnation"),
        ("flows", "kind state ack"),
        ("config", "seed snat snat_ports refusals failover"),
    ];
    for (map, names) in fields {
        let text = shell(&format!(
            "bpftool -j map dump pinned {pins}/maps/{map} | head -c 4000"
        ));
        for name in names.split(' ') {
            assert!(
                text.contains(&format!("\"{name}\"")),
                "{map} has no {name}: {text}"
            );
        }
    }
    held.finish().expect("report");
}
