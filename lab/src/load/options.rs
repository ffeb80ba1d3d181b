//! What to send, from where and for how long; the same value is a command line and what a bench fills in.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::report::Traffic;

/// Options of `lab load`.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a command line, independent of each other"
)]
pub struct Options {
    /// Address and port to connect to.
    #[arg(long)]
    pub target: SocketAddrV4,
    /// Client addresses to take turns: `192.0.2.130-145`, or a list with commas.
    #[arg(long)]
    pub sources: Option<Sources>,
    /// Seconds to run.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Short connections per second.
    #[arg(long, default_value_t = 100)]
    pub rate: u64,
    /// End after this many short connections.
    #[arg(long)]
    pub count: Option<u64>,
    /// Kinds of traffic.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "short")]
    pub mix: Vec<Traffic>,
    /// Keep-alive connections to hold.
    #[arg(long, default_value_t = 16)]
    pub keepalive_conns: u32,
    /// Downloads at a time.
    #[arg(long, default_value_t = 4)]
    pub downloads: u32,
    /// Bytes of a download.
    #[arg(long, default_value_t = 8 * 1024 * 1024)]
    pub download_bytes: u64,
    /// Bytes per second of a download (0: as fast as it goes).
    #[arg(long, default_value_t = 1024 * 1024)]
    pub download_rate: u64,
    /// UDP clients.
    #[arg(long, default_value_t = 8)]
    pub udp_clients: u32,
    /// UDP exchanges from one port before the client takes another.
    #[arg(long, default_value_t = 20)]
    pub udp_flow: u32,
    /// Idle connections to hold.
    #[arg(long, default_value_t = 16)]
    pub idle_conns: u32,
    /// Milliseconds between requests of a keep-alive connection or a UDP client.
    #[arg(long, default_value_t = 50)]
    pub think_ms: u64,
    /// Milliseconds to wait for a SYN-ACK.
    #[arg(long, default_value_t = 8000)]
    pub connect_timeout_ms: u64,
    /// Milliseconds to wait for an answer, or for more of one.
    #[arg(long, default_value_t = 8000)]
    pub answer_timeout_ms: u64,
    /// Milliseconds to wait for a UDP answer.
    #[arg(long, default_value_t = 1000)]
    pub udp_timeout_ms: u64,
    /// The server must have seen the address and port that this client has; otherwise the bytes are wrong.
    #[arg(long)]
    pub own_address: bool,
    /// Take any answer with status 200 (for servers that are not `lab serve`; short, keepalive and idle only).
    #[arg(long)]
    pub any_body: bool,
    /// Print `ready`, then wait for a line on standard input.
    #[arg(long)]
    pub barrier: bool,
    /// Say after each second what it brought, as lines before the report.
    #[arg(long)]
    pub live: bool,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
}

impl Options {
    /// Short connections at this target, everything else by default.
    pub fn to(target: SocketAddrV4) -> Self {
        Self {
            target,
            sources: None,
            duration: 10.0,
            rate: 100,
            count: None,
            mix: vec![Traffic::Short],
            keepalive_conns: 16,
            downloads: 4,
            download_bytes: 8 * 1024 * 1024,
            download_rate: 1024 * 1024,
            udp_clients: 8,
            udp_flow: 20,
            idle_conns: 16,
            think_ms: 50,
            connect_timeout_ms: 8000,
            answer_timeout_ms: 8000,
            udp_timeout_ms: 1000,
            own_address: false,
            any_body: false,
            barrier: false,
            live: false,
            threads: 1,
        }
    }

    /// As arguments of `lab load`.
    pub fn to_args(&self) -> Vec<OsString> {
        let mix: Vec<String> = self.mix.iter().map(Traffic::to_string).collect();
        let mut args = vec![
            format!("--target={}", self.target),
            format!("--mix={}", mix.join(",")),
        ];
        args.extend(
            self.sources
                .as_ref()
                .map(|sources| format!("--sources={}", sources.list())),
        );
        args.extend(self.count.map(|count| format!("--count={count}")));
        let numbers = [
            ("rate", self.rate),
            ("keepalive-conns", self.keepalive_conns.into()),
            ("downloads", self.downloads.into()),
            ("download-bytes", self.download_bytes),
            ("download-rate", self.download_rate),
            ("udp-clients", self.udp_clients.into()),
            ("udp-flow", self.udp_flow.into()),
            ("idle-conns", self.idle_conns.into()),
            ("think-ms", self.think_ms),
            ("connect-timeout-ms", self.connect_timeout_ms),
            ("answer-timeout-ms", self.answer_timeout_ms),
            ("udp-timeout-ms", self.udp_timeout_ms),
            ("threads", self.threads as u64),
        ];
        args.extend(numbers.map(|(name, value)| format!("--{name}={value}")));
        args.push(format!("--duration={}", self.duration));
        let flags = [
            ("own-address", self.own_address),
            ("any-body", self.any_body),
            ("barrier", self.barrier),
            ("live", self.live),
        ];
        args.extend(
            flags
                .iter()
                .filter(|(_, on)| *on)
                .map(|(name, _)| format!("--{name}")),
        );
        args.into_iter().map(OsString::from).collect()
    }

    pub(super) fn has(&self, traffic: Traffic) -> bool {
        self.mix.contains(&traffic)
    }

    /// How many connections or clients of a kind to hold.
    pub(super) fn count_of(&self, traffic: Traffic) -> u32 {
        match traffic {
            _ if !self.has(traffic) => 0,
            Traffic::Short => 0,
            Traffic::Keepalive => self.keepalive_conns,
            Traffic::Download => self.downloads,
            Traffic::Udp => self.udp_clients,
            Traffic::Idle => self.idle_conns,
        }
    }

    pub(super) fn think(&self) -> Duration {
        Duration::from_millis(self.think_ms)
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.answer_timeout_ms)
    }

    pub(super) fn udp_timeout(&self) -> Duration {
        Duration::from_millis(self.udp_timeout_ms)
    }
}

/// Client addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sources(pub Vec<Ipv4Addr>);

impl Sources {
    fn list(&self) -> String {
        self.0
            .iter()
            .map(Ipv4Addr::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl FromStr for Sources {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, ""));
            let first: Ipv4Addr = first
                .parse()
                .with_context(|| format!("`{first}` is not an IPv4 address"))?;
            let [a, b, c, from] = first.octets();
            let to = match last {
                "" => from,
                last => last
                    .parse()
                    .with_context(|| format!("`{last}` in `{part}` is not a last octet (0-255)"))?,
            };
            ensure!(from <= to, "`{part}` ends before it starts");
            all.extend((from..=to).map(|d| Ipv4Addr::new(a, b, c, d)));
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_command_line_carries_everything() {
        let mut options = Options::to(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 64), 80));
        let bare = Cli::parse_from(["load", "--target", "192.0.2.64:80"]).options;
        assert_eq!(
            format!("{options:?}"),
            format!("{bare:?}"),
            "defaults are the same on both ways"
        );
        options.sources = Some("192.0.2.130-132,192.0.2.140".parse().expect("sources"));
        options.mix = Traffic::ALL.to_vec();
        options.count = Some(5);
        options.duration = 0.25;
        (options.own_address, options.any_body) = (true, true);
        (options.barrier, options.live) = (true, true);
        (options.rate, options.udp_flow, options.threads) = (1, 2, 3);
        let args = std::iter::once(OsString::from("load")).chain(options.to_args());
        assert_eq!(
            format!("{:?}", Cli::parse_from(args).options),
            format!("{options:?}")
        );
    }

    #[test]
    fn sources_are_ranges_and_lists() {
        let sources: Sources = "10.0.0.1-3,10.0.1.9".parse().expect("sources");
        assert_eq!(sources.list(), "10.0.0.1,10.0.0.2,10.0.0.3,10.0.1.9");
        for bad in [
            "",
            "10.0.0",
            "10.0.0.9-3",
            "10.0.0.1-256",
            "10.0.0.1-10.0.0.2",
        ] {
            assert!(bad.parse::<Sources>().is_err(), "{bad}");
        }
    }
}
