//! Puts the data plane into the kernel and takes it out again.
//!
//! Maps and links are pinned, so they outlive the agent: a restart finds them, replaces the
//! programs atomically, and traffic never stops. One agent per pin directory. What others have
//! placed on an interface is never removed, and [`detach_all`] removes everything that was ever
//! placed here and nothing else.

mod attach;
mod detach;
mod egress;
mod error;
mod lock;
mod mapping;
mod maps;
mod pin;
mod program;
mod run;
mod support;
mod sys;
mod table;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::MapData;

pub use attach::{Attachment, Mode, XdpMode};
pub use detach::{Removed, detach_all};
pub use error::LoadError;
pub use lock::Lock;
pub use maps::{MAPS, MapKind, MapShape, Maps, Rebuilt, Refusals};
pub use pin::{DEFAULT_PIN_DIR, Pins};
pub use run::Sweep;
pub use support::check_support;
pub use table::TableMap;

/// The object that was built with this binary; empty when there was none.
pub static EBPF_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("SLUICE_EBPF_OBJECT"));

/// What to open.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where pins live; a folder on a bpf filesystem.
    pub pin_dir: PathBuf,
    /// The eBPF object.
    pub object: Cow<'static, [u8]>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new(EBPF_OBJECT)
    }
}

impl Options {
    /// The default pin directory with this object.
    pub fn new(object: impl Into<Cow<'static, [u8]>>) -> Self {
        Self {
            pin_dir: PathBuf::from(DEFAULT_PIN_DIR),
            object: object.into(),
        }
    }

    /// The same with another pin directory.
    #[must_use]
    pub fn pin_dir(mut self, pin_dir: impl Into<PathBuf>) -> Self {
        self.pin_dir = pin_dir.into();
        self
    }
}

/// The data plane in the kernel, as this agent holds it.
pub struct Datapath {
    object: Cow<'static, [u8]>,
    pins: Pins,
    /// Typed handles of all maps.
    pub maps: Maps,
    /// Maps that had another shape and were made anew, with what they held lost.
    pub rebuilt: Vec<Rebuilt>,
    /// Programs that only the agent runs.
    tools: Ebpf,
    attached: BTreeMap<String, Attachment>,
    /// Released last: nobody else may touch the pins before.
    _lock: Lock,
}

impl Datapath {
    /// Opens the pinned maps, or makes them. Attaches nothing.
    pub fn open(options: Options) -> Result<Self, LoadError> {
        let Options { pin_dir, object } = options;
        check_support()?;
        let pins = Pins::prepare(&pin_dir)?;
        let lock = Lock::take(pins.root())?;
        let rebuilt = maps::drop_misfits(&pins)?;
        let mut tools = program::load_object(&object, &pins, None)?;
        program::classifier(&mut tools, program::EMIT)?;
        program::tool(&mut tools, program::SWEEP)?;
        let maps = Maps::take(&mut tools)?;
        Ok(Self {
            object,
            pins,
            maps,
            rebuilt,
            tools,
            attached: BTreeMap::new(),
            _lock: lock,
        })
    }

    /// Where the pins are.
    pub fn pin_dir(&self) -> &Path {
        self.pins.root()
    }

    /// Another handle of the flow table, for walking it.
    pub fn flows(&self) -> Result<MapData, LoadError> {
        maps::reopen(&self.pins, "flows")
    }

    /// What this agent has attached, by interface.
    pub fn attached(&self) -> impl Iterator<Item = &Attachment> {
        self.attached.values()
    }

    /// Checks that the attached programs are ours and use the maps we hold; an agent that writes
    /// into maps which no program reads would be blind to it.
    pub fn verify(&self) -> Result<(), LoadError> {
        self.maps.verify_pins(&self.pins)?;
        for attachment in self.attached.values() {
            attach::verify(attachment, &self.pins)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
