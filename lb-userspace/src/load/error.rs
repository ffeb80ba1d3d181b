//! What can go wrong on the way into the kernel, in words for the operator.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::pin::PinError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;
use thiserror::Error;

use crate::netlink::NetlinkError;

/// Why the data plane could not be loaded, attached or removed.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Rights are missing.
    #[error(
        "missing {missing}: run as root, or give the process CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    NoRights {
        /// The capabilities that are missing.
        missing: String,
    },
    /// The kernel is too old.
    #[error("kernel {found} is too old: {needs} needs {wanted} or later")]
    OldKernel {
        /// What it is.
        found: String,
        /// What is needed.
        wanted: &'static str,
        /// By what.
        needs: &'static str,
    },
    /// The pin directory is not on a bpf filesystem.
    #[error(
        "{path} is not on a bpf filesystem; mount one with `mount -t bpf bpf /sys/fs/bpf`{}",
        .source.as_ref().map(|e| format!(" (tried, and failed: {e})")).unwrap_or_default(),
        path = .path.display()
    )]
    NoBpfFs {
        /// The pin directory.
        path: PathBuf,
        /// Why it could not be mounted, when that was tried.
        source: Option<io::Error>,
    },
    /// Another agent holds the pin directory.
    #[error("another agent{} uses {path}; two would undo each other's work", .pid.map(|p| format!(" (pid {p})")).unwrap_or_default(), path = .path.display())]
    Busy {
        /// The pin directory.
        path: PathBuf,
        /// Its process id, where that can be seen.
        pid: Option<u32>,
    },
    /// This binary was built without an eBPF object.
    #[error("no eBPF object: build with `cargo xtask build`")]
    NoObject,
    /// A file or folder.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The object could not be loaded.
    #[error("eBPF object: {0}")]
    Object(#[source] Box<EbpfError>),
    /// The object has not what it should have.
    #[error("the eBPF object has no {what} {name}; it belongs to another version")]
    Missing {
        /// A program or a map.
        what: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The object has a map that nobody has decided on.
    #[error("the eBPF object has a map {name} that this agent does not know")]
    UnknownMap {
        /// Its name.
        name: String,
    },
    /// The kernel refused a program.
    #[error("the kernel refused program {program}: {source}\n{log}")]
    Refused {
        /// The program.
        program: &'static str,
        /// Its answer.
        source: io::Error,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// A map.
    #[error("map {map}: {source}")]
    Map {
        /// Which.
        map: &'static str,
        /// Why.
        source: Box<MapError>,
    },
    /// A pinned map is not the one that is held.
    #[error("pinned map {map} is number {pinned}, this agent holds {held}: restart the agent")]
    MapReplaced {
        /// Which.
        map: &'static str,
        /// The pin's id; 0 when the pin is gone.
        pinned: u32,
        /// The id held.
        held: u32,
    },
    /// An attached program is not ours, or uses other maps.
    #[error("{interface}: {what}")]
    NotOurs {
        /// The interface.
        interface: String,
        /// What was found instead.
        what: String,
    },
    /// Somebody else's XDP program is on the interface.
    #[error(
        "{interface} has an XDP program of somebody else: id {id}{}; it is left alone. See `bpftool prog show id {id}`, \
         and remove it with its own tool",
        .name.as_ref().map(|n| format!(", named {n}")).unwrap_or_default()
    )]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The program's id.
        id: u32,
        /// Its name, where rights allow to read it.
        name: Option<String>,
    },
    /// The interface can't.
    #[error("{interface} refuses {mode} XDP: {source}")]
    Attach {
        /// The interface.
        interface: String,
        /// How it was tried.
        mode: &'static str,
        /// Why.
        source: Box<ProgramError>,
    },
    /// The interface has no hardware address of Ethernet's kind.
    #[error("{interface} is no Ethernet interface")]
    NotEthernet {
        /// The interface.
        interface: String,
    },
    /// A program.
    #[error("{what}: {source}")]
    Program {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: Box<ProgramError>,
    },
    /// A link.
    #[error("{path}: {source}", path = .path.display())]
    Link {
        /// Its pin.
        path: PathBuf,
        /// Why.
        source: LinkError,
    },
    /// A pin.
    #[error("cannot pin {path}: {source}", path = .path.display())]
    Pin {
        /// Which.
        path: PathBuf,
        /// Why.
        source: PinError,
    },
    /// The sweep did not run to its end.
    #[error("the sweep of the flows ended with {code}")]
    SweepFailed {
        /// What it returned.
        code: u32,
    },
    /// The network could not be asked.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl LoadError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn program(what: &'static str) -> impl FnOnce(ProgramError) -> Self {
        move |source| Self::Program {
            what,
            source: Box::new(source),
        }
    }
}
