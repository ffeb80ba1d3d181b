//! Logs, as text for people or JSON for collectors. No line per packet, ever.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::TryInitError;

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

/// The crate that speaks to the Kubernetes API.
const CLIENT: &str = "kube_client";

/// Why logging cannot start.
#[derive(Debug, Error)]
pub enum LogError {
    /// The filter makes no sense.
    #[error(
        "log filter {filter:?}: {source}; expected a level (info) or targets (warn,lb_userspace=debug)"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody has started logging before.
    #[error("logging is started already")]
    Started(#[source] TryInitError),
}

/// Starts logging to standard error with a filter such as `info` or `warn,lb_userspace=debug`.
pub fn init(format: LogFormat, filter: &str) -> Result<(), LogError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter = parse(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal();
            builder.with_ansi(colour).finish().try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .map_err(LogError::Started)
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let filter = &complete(filter);
    EnvFilter::try_new(filter).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

/// The Kubernetes client calls every attempt of a long outage an error. What failed, and since when
/// it matters, is said by who asked; whoever wants the client's words names it.
fn complete(filter: &str) -> String {
    if filter.contains(CLIENT) {
        return filter.to_owned();
    }
    format!("{filter},{CLIENT}::client=off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_client_is_quiet_unless_it_is_asked_for() {
        let of = |filter| parse(filter).expect("a filter").to_string();
        assert!(of("info").contains("kube_client::client=off"));
        assert!(!of("info,kube_client=debug").contains("off"));
    }

    #[test]
    fn a_bad_filter_says_what_was_expected() {
        assert!(parse("warn,lb_userspace=debug").is_ok());
        let error = parse("lb_userspace=loud").expect_err("no such level");
        assert!(error.to_string().contains("expected a level"), "{error}");
    }
}
