//! What the reading subcommands share: arguments, where they read, and how they print.
//!
//! Each gathers plain data, then renders it by a pure function. The kernel's maps are the
//! truth; a running agent only adds names and causes, and its absence is said, not hidden.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use lb_common::V4;
use lb_common::abi::FrontendKey;
use serde::Serialize;
use thiserror::Error;

use crate::observe::client::fetch_state;
use crate::observe::links::LinkError;
use crate::observe::pins::{Clocks, DEFAULT_PIN_DIR, PinError, PinnedMaps};
use crate::observe::state::{FrontendState, StateSnapshot};
use crate::observe::{self, counters::CounterError};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

/// Arguments of every reading subcommand.
#[derive(Args, Clone, Debug)]
pub struct ReadArgs {
    /// Where the agent pins its maps
    #[arg(long, env = "SLUICE_PIN_DIR", value_name = "DIR", default_value = DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// HTTP address of the agent, asked for names and causes
    #[arg(long, env = "SLUICE_METRICS_ADDRESS", value_name = "ADDRESS",
        default_value = observe::DEFAULT_HTTP_ADDRESS)]
    pub agent: SocketAddr,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Why a subcommand has nothing to show.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The pinned maps.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// The counters.
    #[error(transparent)]
    Counters(#[from] CounterError),
    /// The interfaces.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// A name was asked for, and only the agent knows names.
    #[error(
        "{name:?} is no VIP, and the agent, who knows names, is not there ({error}); give a VIP or VIP:port"
    )]
    NameWithoutAgent {
        /// As given.
        name: String,
        /// Why the agent said nothing.
        error: String,
    },
    /// Nothing has that name.
    #[error("no frontend belongs to {0:?}; expected namespace/name, a VIP, or VIP:port")]
    NoSuchService(String),
    /// Writing JSON failed.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Writing YAML failed.
    #[error("cannot write YAML: {0}")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Whether the agent could be asked.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AgentLine {
    /// Where it was asked.
    pub address: SocketAddr,
    /// It answered.
    pub running: bool,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AgentLine {
    /// A line for people; empty while all is well.
    pub fn warning(&self) -> String {
        self.error.as_ref().map_or_else(String::new, |error| {
            format!(
                "agent not running: {error}\n(names and causes are unknown; traffic goes on)\n\n"
            )
        })
    }
}

/// What a reading subcommand reads from.
#[derive(Debug)]
pub struct Sources {
    /// The pinned maps.
    pub maps: PinnedMaps,
    /// What the agent says, if it runs.
    pub state: Option<StateSnapshot>,
    /// Whether it does.
    pub agent: AgentLine,
    /// For ages and deadlines.
    pub clocks: Clocks,
}

impl Sources {
    /// Opens the pins and asks the agent.
    pub fn open(args: &ReadArgs) -> Result<Self, ReadError> {
        let maps = PinnedMaps::open(&args.pin_dir)?;
        let (agent, state) = ask(args.agent);
        Ok(Self {
            maps,
            state,
            agent,
            clocks: Clocks::read(),
        })
    }
}

/// Asks the agent.
pub fn ask(address: SocketAddr) -> (AgentLine, Option<StateSnapshot>) {
    let (state, error) = match fetch_state(address) {
        Ok(state) => (Some(state), None),
        Err(error) => (None, Some(error.to_string())),
    };
    (
        AgentLine {
            address,
            running: state.is_some(),
            error,
        },
        state,
    )
}

/// Something that people read as a table.
pub trait Tabular: Serialize {
    /// The table, with a line break at its end.
    fn table(&self) -> String;
}

/// In the form asked for.
pub fn render(value: &impl Tabular, format: Format) -> Result<String, ReadError> {
    match format {
        Format::Table => Ok(value.table()),
        Format::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
        Format::Yaml => Ok(serde_saphyr::to_string(value)?),
    }
}

/// Columns without borders, so that `awk` and people can both read them.
pub fn columns<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
        .lines()
        .map(|line| line.trim().to_owned() + "\n")
        .collect()
}

/// A dash for what is not known.
pub fn dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

/// A number of seconds as people say it.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `VIP:port/PROTOCOL` of a key in the maps.
pub fn frontend_name(key: &FrontendKey<V4>) -> String {
    let address = Ipv4Addr::from(key.address);
    format!("{address}:{}/{}", key.port, protocol(key.protocol))
}

/// Name of a protocol number that a frontend can have.
pub fn protocol(number: u8) -> &'static str {
    match number {
        6 => "TCP",
        17 => "UDP",
        _ => "?",
    }
}

/// The agent's entries, by their key in the maps.
#[derive(Debug)]
pub struct Names<'a>(BTreeMap<FrontendKey<V4>, &'a FrontendState>);

impl<'a> Names<'a> {
    /// None without an agent, and none for what the maps cannot hold.
    pub fn of(state: Option<&'a StateSnapshot>) -> Self {
        let frontends = state.into_iter().flat_map(|state| &state.frontends);
        Self(
            frontends
                .filter_map(|frontend| Some((key_of(frontend)?, frontend)))
                .collect(),
        )
    }

    /// The agent's entry for this key.
    pub fn find(&self, key: &FrontendKey<V4>) -> Option<&'a FrontendState> {
        self.0.get(key).copied()
    }
}

fn key_of(frontend: &FrontendState) -> Option<FrontendKey<V4>> {
    let Some(IpAddr::V4(address)) = frontend.address else {
        return None;
    };
    let protocol = match frontend.protocol.as_str() {
        "TCP" => 6,
        "UDP" => 17,
        _ => return None,
    };
    Some(FrontendKey {
        address: address.into(),
        port: frontend.port,
        protocol,
        zero: 0,
    })
}

/// Picks frontends by `namespace/name`, VIP, or VIP:port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// All.
    Everything,
    /// Those of a VIP, or of one of its ports.
    Vip(Ipv4Addr, Option<u16>),
    /// Those of a Service.
    Service(String),
}

impl Wanted {
    /// From the argument; a name is of use only with an agent to ask.
    pub fn parse(text: Option<&str>, agent: &AgentLine) -> Result<Self, ReadError> {
        let Some(text) = text else {
            return Ok(Self::Everything);
        };
        if let Ok(address) = text.parse() {
            return Ok(Self::Vip(address, None));
        }
        if let Ok(SocketAddr::V4(socket)) = text.parse() {
            return Ok(Self::Vip(*socket.ip(), Some(socket.port())));
        }
        match &agent.error {
            Some(error) => Err(ReadError::NameWithoutAgent {
                name: text.to_owned(),
                error: error.clone(),
            }),
            None => Ok(Self::Service(text.to_owned())),
        }
    }

    /// Whether this frontend is meant. A name without namespace means it in any.
    pub fn matches(&self, key: &FrontendKey<V4>, service: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Vip(address, port) => {
                Ipv4Addr::from(key.address) == *address && port.is_none_or(|port| port == key.port)
            }
            Self::Service(name) => {
                service == name
                    || service
                        .split_once('/')
                        .is_some_and(|(_, tail)| tail == name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let ages = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
        ];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn frontends_are_picked_by_name_vip_or_port() {
        let address = "127.0.0.1:9095".parse().expect("address");
        let up = AgentLine {
            address,
            running: true,
            error: None,
        };
        let down = AgentLine {
            address,
            running: false,
            error: Some("refused".into()),
        };
        let key = FrontendKey {
            address: V4([192, 0, 2, 10]),
            port: 80,
            protocol: 6,
            zero: 0,
        };
        for (text, wanted) in [
            (None, true),
            (Some("192.0.2.10"), true),
            (Some("192.0.2.10:80"), true),
            (Some("192.0.2.10:81"), false),
            (Some("shop/web"), true),
            (Some("web"), true),
            (Some("shop"), false),
        ] {
            let picked = Wanted::parse(text, &up).expect("parses");
            assert_eq!(picked.matches(&key, "shop/web"), wanted, "{text:?}");
        }
        assert!(Wanted::parse(Some("192.0.2.10"), &down).is_ok());
        let error = Wanted::parse(Some("web"), &down).expect_err("names need the agent");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
