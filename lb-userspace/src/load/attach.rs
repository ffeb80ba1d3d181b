//! XDP on an interface: by a pinned link, replaced atomically, never over somebody else's program.
//!
//! A link found pinned and still on the interface gets the new program in one step; packets meet
//! the old one or the new one. A link whose interface is gone (or has come back as another) is
//! dropped. Mode `auto` is native, except on veth: native transmission is lost there when the peer
//! has no program, and that cannot be seen.

use std::fmt;
use std::os::fd::AsFd as _;
use std::path::Path;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{
    ProgramError, ProgramFd, ProgramInfo, SchedClassifier, Xdp, XdpMode as AyaMode, loaded_programs,
};
use lb_common::Mac;
use lb_common::abi::{LINK_GENERIC, LINK_NONE, LINK_VIRTUAL, Link as LinkConstant};

use super::{Datapath, LoadError, Pins, maps, program, sys};
use crate::netlink::{Link, LinkKind, link_by_name};

/// How XDP is asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum XdpMode {
    /// Native where it works, else generic.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// On socket buffers.
    Generic,
}

/// How XDP runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// On socket buffers.
    Generic,
}

impl Mode {
    /// Lower-case word for messages and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The programs on one interface.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The interface, as it was when attached.
    pub link: Link,
    /// How XDP runs there; none where only the egress program is.
    pub mode: Option<Mode>,
    /// Why it is not the mode one would expect.
    pub note: Option<String>,
    /// Id of the XDP program.
    pub xdp_program: Option<u32>,
    /// Id of the egress program.
    pub egress_program: Option<u32>,
}

impl Attachment {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            mode: None,
            note: None,
            xdp_program: None,
            egress_program: None,
        }
    }
}

/// A loaded program of either kind.
pub(super) trait Loaded {
    fn info(&self) -> Result<ProgramInfo, ProgramError>;
    fn fd(&self) -> Result<&ProgramFd, ProgramError>;
}

impl Loaded for Xdp {
    fn info(&self) -> Result<ProgramInfo, ProgramError> {
        Self::info(self)
    }

    fn fd(&self) -> Result<&ProgramFd, ProgramError> {
        Self::fd(self)
    }
}

impl Loaded for SchedClassifier {
    fn info(&self) -> Result<ProgramInfo, ProgramError> {
        Self::info(self)
    }

    fn fd(&self) -> Result<&ProgramFd, ProgramError> {
        Self::fd(self)
    }
}

impl Datapath {
    /// Attaches the ingress program, or replaces the one that an earlier agent attached.
    pub fn attach(&mut self, interface: &str, wanted: XdpMode) -> Result<&Attachment, LoadError> {
        let link = link_by_name(interface)?;
        if link.mac.is_none() {
            return Err(LoadError::NotEthernet {
                interface: interface.to_owned(),
            });
        }
        let (modes, mut note) = modes(&link, wanted);
        let pin = self.pins.xdp(interface);
        let (mode, program) = if let Some(replaced) = self.replace(&link, &pin, modes)? {
            replaced
        } else {
            check_foreign(&link)?;
            self.attach_new(&link, &pin, modes, &mut note)?
        };
        let attachment = self
            .attached
            .entry(interface.to_owned())
            .and_modify(|attachment| attachment.link = link.clone())
            .or_insert_with(|| Attachment::new(link));
        attachment.mode = Some(mode);
        attachment.note = note;
        attachment.xdp_program = Some(program);
        Ok(attachment)
    }

    /// Replaces the program in the pinned link; `None` when there is none that can be used.
    fn replace(
        &self,
        link: &Link,
        pin: &Path,
        modes: &[Mode],
    ) -> Result<Option<(Mode, u32)>, LoadError> {
        let Some(pinned) = sys::pinned_link(pin).map_err(LoadError::io(pin))? else {
            return Ok(None);
        };
        let on = link.xdp.filter(|xdp| xdp.program == pinned.program);
        let mode = on.map(|xdp| {
            if xdp.generic {
                Mode::Generic
            } else {
                Mode::Native
            }
        });
        let Some(mode) = mode.filter(|mode| pinned.ifindex == link.index && modes.contains(mode))
        else {
            tracing::info!(interface = %link.name, "dropping a link of an interface that is gone, or of another mode");
            sys::remove_link(pin).map_err(LoadError::io(pin))?;
            return Ok(None);
        };
        let mut ebpf = self.instance(link, mode)?;
        let program = program::xdp(&mut ebpf, name(link, mode))?;
        let id = self.identify(&link.name, program)?;
        let old = PinnedLink::from_pin(pin).map_err(|source| LoadError::Link {
            path: pin.to_owned(),
            source,
        })?;
        let old = FdLink::from(old)
            .try_into()
            .map_err(|source| LoadError::Link {
                path: pin.to_owned(),
                source,
            })?;
        let attached = program
            .attach_to_link(old)
            .map_err(attach_error(link, mode))?;
        // Closes the descriptor; the pin keeps the link.
        drop(
            program
                .take_link(attached)
                .map_err(attach_error(link, mode))?,
        );
        Ok(Some((mode, id)))
    }

    /// Attaches in the first mode that the interface takes.
    fn attach_new(
        &self,
        link: &Link,
        pin: &Path,
        modes: &[Mode],
        note: &mut Option<String>,
    ) -> Result<(Mode, u32), LoadError> {
        let mut refusal = None;
        for mode in modes {
            let mut ebpf = self.instance(link, *mode)?;
            let program = program::xdp(&mut ebpf, name(link, *mode))?;
            let program_id = self.identify(&link.name, program)?;
            let aya_mode = match mode {
                Mode::Native => AyaMode::Driver,
                Mode::Generic => AyaMode::Skb,
            };
            let id = match program.attach_to_if_index(link.index, aya_mode) {
                Ok(id) => id,
                Err(error) => {
                    refusal = Some(attach_error(link, *mode)(error));
                    continue;
                }
            };
            let attached = program.take_link(id).map_err(attach_error(link, *mode))?;
            let attached = FdLink::try_from(attached).map_err(|source| LoadError::Link {
                path: pin.to_owned(),
                source,
            })?;
            attached.pin(pin).map_err(|source| LoadError::Pin {
                path: pin.to_owned(),
                source,
            })?;
            if let Some(refusal) = refusal {
                tracing::warn!("{refusal}; {mode} XDP instead");
                *note = Some(refusal.to_string());
            }
            return Ok((*mode, program_id));
        }
        // The list of modes is never empty.
        Err(refusal.unwrap_or_else(|| LoadError::NotEthernet {
            interface: link.name.clone(),
        }))
    }

    /// A program's id, once it is sure that it uses the maps that are held: writing into others
    /// would have no effect, and nobody would see why.
    pub(super) fn identify<P: Loaded>(
        &self,
        interface: &str,
        program: &P,
    ) -> Result<u32, LoadError> {
        let identity = LoadError::program("read the program's identity");
        let info = program.info().map_err(identity)?;
        let identity = LoadError::program("read the program's identity");
        let fd = program.fd().map_err(identity)?;
        let maps = sys::program_maps(fd.as_fd()).map_err(LoadError::io("a program's maps"))?;
        let strangers = self.maps.strangers(&maps);
        if strangers.len() == maps.len() || strangers.len() > maps::PRIVATE.len() {
            let what =
                format!("the program uses maps {strangers:?}, which this agent does not hold");
            return Err(LoadError::NotOurs {
                interface: interface.to_owned(),
                what,
            });
        }
        Ok(info.id())
    }

    /// The object, loaded for this interface.
    pub(super) fn instance(&self, link: &Link, mode: Mode) -> Result<aya::Ebpf, LoadError> {
        let mut flags = LINK_NONE;
        if link.kind.leaves_checksums_open() {
            flags |= LINK_VIRTUAL;
        }
        if mode == Mode::Generic {
            flags |= LINK_GENERIC;
        }
        let mac = Mac(link.mac.unwrap_or_default());
        let constant = LinkConstant {
            ifindex: link.index,
            mac,
            flags,
            zero: 0,
        };
        program::load_object(&self.object, &self.pins, Some(&constant))
    }
}

/// Checks one attachment: the pinned links carry our programs.
pub(super) fn verify(attachment: &Attachment, pins: &Pins) -> Result<(), LoadError> {
    let interface = &attachment.link.name;
    let not_ours = |what: String| LoadError::NotOurs {
        interface: interface.clone(),
        what,
    };
    let links = [
        (pins.xdp(interface), attachment.xdp_program, "XDP"),
        (pins.egress(interface), attachment.egress_program, "egress"),
    ];
    for (pin, ours, what) in links {
        let Some(ours) = ours else { continue };
        match sys::pinned_link(&pin).map_err(LoadError::io(&pin))? {
            Some(link) if link.program == ours && link.ifindex == attachment.link.index => {}
            Some(link) => {
                let (program, ifindex) = (link.program, link.ifindex);
                return Err(not_ours(format!(
                    "{what} program {program} on interface {ifindex}, expected {ours} on {}",
                    attachment.link.index
                )));
            }
            None => return Err(not_ours(format!("{what} link is not pinned any more"))),
        }
    }
    Ok(())
}

/// Modes to try, best first, and what to say about that.
fn modes(link: &Link, wanted: XdpMode) -> (&'static [Mode], Option<String>) {
    match wanted {
        XdpMode::Native => (&[Mode::Native], None),
        XdpMode::Generic => (&[Mode::Generic], None),
        XdpMode::Auto if link.kind == LinkKind::Veth => {
            let note = "generic on veth: native XDP there loses what it sends when the peer has \
                        no XDP program; ask for `native` if it has";
            (&[Mode::Generic], Some(note.to_owned()))
        }
        XdpMode::Auto => (&[Mode::Native, Mode::Generic], None),
    }
}

/// On veth, a program for one-piece frames makes the kernel switch segmentation offload off at the
/// peer, and drivers that may hand over pieces need the other one.
fn name(link: &Link, mode: Mode) -> &'static str {
    match (link.kind, mode) {
        (LinkKind::Veth, _) => program::XDP,
        (_, Mode::Native | Mode::Generic) => program::XDP_FRAGS,
    }
}

fn check_foreign(link: &Link) -> Result<(), LoadError> {
    // Our own pin may be just gone: then the kernel has detached the program already.
    let now = link_by_name(&link.name)?;
    let Some(xdp) = now.xdp else { return Ok(()) };
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|info| info.id() == xdp.program)
        .and_then(|info| info.name_as_str().map(str::to_owned));
    Err(LoadError::ForeignProgram {
        interface: link.name.clone(),
        id: xdp.program,
        name,
    })
}

fn attach_error(link: &Link, mode: Mode) -> impl FnOnce(ProgramError) -> LoadError {
    let interface = link.name.clone();
    move |error| LoadError::Attach {
        interface,
        mode: mode.as_str(),
        source: Box::new(error),
    }
}
