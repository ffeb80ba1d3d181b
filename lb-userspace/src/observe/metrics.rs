//! Prometheus metrics. Label values are names fixed at compile time (reasons, maps, states):
//! no object's name is ever a label, so the number of series has a bound.

use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use lb_common::Reason;
use lb_common::abi::{Counter as Packet, SCHEMA};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::counters::CounterSource;
use super::pins::MAPS;
use super::state::StateSnapshot;

/// Media type of what [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct MapLabel {
    map: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ChangeLabel {
    to: &'static str,
    cause: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabel {
    reason: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct BuildLabel {
    version: String,
    schema: u32,
}

/// All series of one agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    entries: Family<MapLabel, Gauge>,
    capacity: Family<MapLabel, Gauge>,
    endpoints: Family<StateLabel, Gauge>,
    flows: Family<StateLabel, Gauge>,
    changes: Family<ChangeLabel, Counter>,
    resets: Counter,
    held: Gauge,
    services: Gauge,
    frontends: Gauge,
    pending: Gauge,
    ignored: Gauge,
    ready: Gauge,
    apply: Histogram,
}

impl Metrics {
    /// Registers everything. Packet counters are read from `source` at each scrape.
    pub fn new(version: &str, source: Arc<dyn CounterSource>) -> Self {
        let mut registry = Registry::with_prefix("sluice");
        registry.register_collector(Box::new(Packets { source }));
        let build = Family::<BuildLabel, Gauge>::default();
        build
            .get_or_create(&BuildLabel {
                version: version.to_owned(),
                schema: SCHEMA,
            })
            .set(1);
        registry.register(
            "build_info",
            "Version of the agent and of the map layouts",
            build,
        );

        let metrics = Self {
            entries: Family::default(),
            capacity: Family::default(),
            endpoints: Family::default(),
            flows: Family::default(),
            changes: Family::default(),
            resets: Counter::default(),
            held: Gauge::default(),
            services: Gauge::default(),
            frontends: Gauge::default(),
            pending: Gauge::default(),
            ignored: Gauge::default(),
            ready: Gauge::default(),
            // 100 us to 1.6 s.
            apply: Histogram::new(exponential_buckets(0.0001, 2.0, 15)),
            registry,
        };
        metrics.register()
    }

    fn register(mut self) -> Self {
        let r = &mut self.registry;
        r.register(
            "map_entries",
            "Entries in use, as last counted",
            self.entries.clone(),
        );
        r.register(
            "map_capacity",
            "Entries the map has room for",
            self.capacity.clone(),
        );
        r.register("endpoints", "Endpoints by state", self.endpoints.clone());
        r.register(
            "endpoint_flows",
            "Flows at the last sweep, by their endpoint's state",
            self.flows.clone(),
        );
        r.register(
            "endpoint_changes",
            "Changes of an endpoint's state, by what it became and why",
            self.changes.clone(),
        );
        r.register(
            "reset_frames",
            "Frames sent to end flows of endpoints that are gone",
            self.resets.clone(),
        );
        r.register(
            "held_frontends",
            "VIP:port combinations nobody asks for, held while connections drain",
            self.held.clone(),
        );
        r.register("services", "Services answered for", self.services.clone());
        r.register(
            "frontends",
            "VIP:port combinations answered for",
            self.frontends.clone(),
        );
        let help = "Map writes that failed and are being retried";
        r.register("failed_writes", help, self.pending.clone());
        r.register(
            "ignored_objects",
            "Objects left out; see /state",
            self.ignored.clone(),
        );
        r.register(
            "ready",
            "1 when the node is ready; see /readyz",
            self.ready.clone(),
        );
        let help = "Time from a change of the sources to the last map write for it";
        r.register("apply_duration_seconds", help, self.apply.clone());
        self
    }

    /// Takes the gauges from a snapshot.
    pub fn update(&self, state: &StateSnapshot) {
        for (name, count) in state.endpoints_by_state() {
            self.endpoints
                .get_or_create(&StateLabel { state: name })
                .set(gauge(count));
        }
        for (name, count) in state.flows_by_state() {
            self.flows
                .get_or_create(&StateLabel { state: name })
                .set(gauge(count));
        }
        let held = state.frontends.iter().filter(|frontend| frontend.held);
        self.held.set(gauge(held.count()));
        for fill in &state.maps {
            // Only known names become labels.
            let Some(map) = MAPS.iter().find(|map| map.name == fill.map) else {
                continue;
            };
            let label = MapLabel { map: map.name };
            self.entries.get_or_create(&label).set(gauge(fill.entries));
            self.capacity
                .get_or_create(&label)
                .set(gauge(fill.capacity));
        }
        self.services.set(gauge(state.services()));
        self.frontends.set(gauge(state.frontends.len()));
        self.pending.set(gauge(state.pending.len()));
        self.ignored.set(gauge(state.ignored.len()));
        self.ready.set(i64::from(state.readiness.ready));
    }

    /// An endpoint's state has changed.
    pub fn changed(&self, to: &'static str, cause: &'static str) {
        self.changes.get_or_create(&ChangeLabel { to, cause }).inc();
    }

    /// So many frames were sent to end flows.
    pub fn reset(&self, frames: usize) {
        self.resets.inc_by(frames as u64);
    }

    /// One round from change to map.
    pub fn observe_apply(&self, took: Duration) {
        self.apply.observe(took.as_secs_f64());
    }

    /// The text that Prometheus reads.
    pub fn encode(&self) -> Result<String, Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// One number of a counter.
type Column = fn(&Packet) -> u64;

/// The data plane's counters, read when asked.
#[derive(Debug)]
struct Packets {
    source: Arc<dyn CounterSource>,
}

impl Collector for Packets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let counters = self.source.read();
        let readable = ConstGauge::new(i64::from(counters.is_ok()));
        let help = "1 while the data plane's counters can be read";
        readable.encode(encoder.encode_descriptor(
            "counters_readable",
            help,
            None,
            MetricType::Gauge,
        )?)?;
        let counters = match counters {
            Ok(counters) => counters,
            Err(error) => {
                tracing::warn!(%error, "no packet counters for this scrape");
                return Ok(());
            }
        };
        let columns: [(&str, &str, Column); 2] = [
            (
                "packets",
                "Packets by reason; see docs/reasons.md",
                |counter| counter.packets,
            ),
            (
                "bytes",
                "Their bytes, Ethernet header included",
                |counter| counter.bytes,
            ),
        ];
        for (name, help, value) in columns {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, counter) in Reason::ALL.iter().zip(&counters) {
                let label = ReasonLabel {
                    reason: reason.as_str(),
                    outcome: reason.outcome().as_str(),
                };
                ConstCounter::new(value(counter)).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::counters::CounterError;
    use super::super::health::Readiness;
    use super::super::state::{EndpointStateEntry, FrontendState, MapFill};
    use super::*;

    #[derive(Debug)]
    struct Fake;

    impl CounterSource for Fake {
        fn read(&self) -> Result<Vec<Packet>, CounterError> {
            let counter = |index: usize| Packet {
                packets: index as u64,
                bytes: 100,
            };
            Ok((0..Reason::COUNT).map(counter).collect())
        }
    }

    fn text(state: &StateSnapshot) -> String {
        let metrics = Metrics::new("1.2.3", Arc::new(Fake));
        metrics.update(state);
        metrics.observe_apply(Duration::from_millis(3));
        metrics.changed("gone", "deadline");
        metrics.reset(5);
        metrics.encode().expect("text")
    }

    #[test]
    fn every_reason_is_a_series() {
        let text = text(&StateSnapshot::default());
        for (index, reason) in Reason::ALL.iter().enumerate() {
            let (label, outcome) = (reason.as_str(), reason.outcome().as_str());
            let labels = format!("{{reason=\"{label}\",outcome=\"{outcome}\"}}");
            assert!(
                text.contains(&format!("sluice_packets_total{labels} {index}\n")),
                "{text}"
            );
            assert!(text.contains(&format!("sluice_bytes_total{labels} 100\n")));
        }
        assert!(text.contains("sluice_build_info{version=\"1.2.3\",schema=\"1\"} 1"));
        assert!(text.contains("sluice_counters_readable 1"));
    }

    #[test]
    fn every_metric_that_operators_are_told_of_is_there() {
        let text = text(&StateSnapshot {
            maps: vec![MapFill {
                map: "flows".into(),
                ..MapFill::default()
            }],
            ..StateSnapshot::default()
        });
        let told = concat!(
            include_str!("../../../docs/operations.md"),
            include_str!("../../../docs/maps.md"),
            include_str!("../../../docs/reasons.md"),
        );
        let words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: std::collections::BTreeSet<_> =
            words.filter(|word| word.starts_with("sluice_")).collect();
        assert!(metrics.len() >= 7, "{metrics:?}");
        for metric in metrics {
            let here = text
                .lines()
                .any(|line| line.split(['{', ' ']).next() == Some(metric));
            assert!(here, "{metric} not in\n{text}");
        }
    }

    #[test]
    fn gauges_follow_the_snapshot_and_labels_stay_known() {
        let endpoint = |state: &str| EndpointStateEntry {
            state: state.into(),
            flows: 4,
            ..Default::default()
        };
        let fill = |map: &str| MapFill {
            map: map.into(),
            entries: 7,
            capacity: 9,
        };
        let state = StateSnapshot {
            readiness: Readiness::of([]),
            frontends: vec![FrontendState {
                service: "shop/web".into(),
                endpoints: vec![endpoint("active"), endpoint("gone"), endpoint("confused")],
                held: true,
                ..Default::default()
            }],
            maps: vec![fill("flows"), fill("made_up")],
            ..Default::default()
        };
        let text = text(&state);
        for line in [
            "sluice_endpoints{state=\"active\"} 1",
            "sluice_endpoints{state=\"draining\"} 0",
            "sluice_endpoints{state=\"gone\"} 1",
            "sluice_endpoint_flows{state=\"gone\"} 4",
            "sluice_endpoint_flows{state=\"draining\"} 0",
            "sluice_endpoint_changes_total{to=\"gone\",cause=\"deadline\"} 1",
            "sluice_reset_frames_total 5",
            "sluice_held_frontends 1",
            "sluice_map_entries{map=\"flows\"} 7",
            "sluice_map_capacity{map=\"flows\"} 9",
            "sluice_services 0",
            "sluice_ready 1",
            "sluice_apply_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
        assert!(!text.contains("made_up") && !text.contains("confused") && !text.contains("shop"));
    }
}
