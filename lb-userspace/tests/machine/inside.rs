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

#[test]
#[ignore = "root"]
fn bpftool_prints_maps_by_the_names_of_their_fields() {
    let Some(builder) = builder("bpftool") else {
        return;
    };
    let stage = stage("bpftool", builder.pods(1), &[]);
    let pin = stage.agent.pins().join("v1/maps/frontends");
    let pin = pin.display().to_string();
    // Not through `ip netns exec`: that mounts /sys anew, and the pins are not to be seen there.
    let out = std::process::Command::new("bpftool")
        .args(["-j", "map", "dump", "pinned", &pin])
        .output()
        .expect("bpftool");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    for field in [
        "\"address\"",
        "\"port\"",
        "\"protocol\"",
        "\"members\"",
        "\"verdict\"",
    ] {
        assert!(text.contains(field), "{field} in {text}");
    }
}
