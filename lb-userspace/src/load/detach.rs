//! Takes out everything that was ever placed under a pin directory, and nothing else.
//!
//! Links first, so that no program runs without its maps' pins; then the maps, then the folders,
//! then the neighbour entries, unless another agent of this machine is still at work and may need
//! them: they do not say whose they are. A file that nobody here would have made stays, and so
//! does its folder. Doing it twice does no harm.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::loaded_programs;
use lb_common::abi::SCHEMA;

use super::pin::on_bpf_fs;
use super::{Datapath, LoadError, Lock, MAPS, program, sys};
use crate::netlink::{links, managed_neighbours, remove_managed};

/// What was removed, and what was left.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Removed {
    /// Links, which detached their programs.
    pub links: Vec<PathBuf>,
    /// Maps.
    pub maps: Vec<PathBuf>,
    /// Neighbour entries.
    pub neighbours: usize,
    /// Files that are not ours.
    pub left: Vec<PathBuf>,
    /// An interface with a program of another agent, for which neighbour entries were left.
    pub other_agent: Option<String>,
}

impl Datapath {
    /// Takes the programs off one interface, which others still may use; its maps stay.
    pub fn detach(&mut self, interface: &str) -> Result<(), LoadError> {
        self.attached.remove(interface);
        for pin in [self.pins.xdp(interface), self.pins.egress(interface)] {
            sys::remove_link(&pin).map_err(LoadError::io(&pin))?;
        }
        Ok(())
    }

    /// Drops the pinned links of interfaces that are not among these.
    pub fn detach_others(&mut self, keep: &[&str]) -> Result<Vec<PathBuf>, LoadError> {
        self.attached
            .retain(|interface, _| keep.contains(&interface.as_str()));
        let kept: Vec<PathBuf> = keep
            .iter()
            .flat_map(|interface| [self.pins.xdp(interface), self.pins.egress(interface)])
            .collect();
        let links = entries(&self.pins.links())?;
        let others: Vec<_> = links
            .into_iter()
            .filter(|pin| !kept.contains(pin))
            .collect();
        others
            .iter()
            .try_for_each(|pin| sys::remove_link(pin).map_err(LoadError::io(pin)))?;
        Ok(others)
    }
}

/// Removes links, maps, folders and neighbour entries. Refused while an agent runs.
pub fn detach_all(root: &Path) -> Result<Removed, LoadError> {
    let mut removed = Removed::default();
    if root.exists() && on_bpf_fs(root) {
        let lock = Lock::take(root)?;
        remove_pins(root, &mut removed)?;
        drop(lock);
    }
    removed.other_agent = other_agent()?;
    if removed.other_agent.is_some() {
        return Ok(removed);
    }
    for neighbour in managed_neighbours()? {
        remove_managed(neighbour.ip, neighbour.ifindex)?;
        removed.neighbours += 1;
    }
    Ok(removed)
}

/// An interface of this network namespace on which a program of ours runs. Without the right to
/// read programs' names there is none to be found.
fn other_agent() -> Result<Option<String>, LoadError> {
    let ours: Vec<u32> = loaded_programs()
        .filter_map(Result::ok)
        // The kernel cuts names off, so the longer one is told by its beginning as well.
        .filter(|info| info.name_as_str().is_some_and(|n| n.starts_with(program::XDP)))
        .map(|info| info.id())
        .collect();
    let on = |xdp: crate::netlink::XdpAttached| ours.contains(&xdp.program);
    let link = links()?.into_iter().find(|link| link.xdp.is_some_and(on));
    Ok(link.map(|link| link.name))
}

fn remove_pins(root: &Path, removed: &mut Removed) -> Result<(), LoadError> {
    let versions: Vec<_> = entries(root)?
        .into_iter()
        .filter(|path| version(path).is_some())
        .collect();
    for version in &versions {
        for pin in entries(&version.join("links"))? {
            let ours = name(&pin).is_some_and(|n| n.starts_with("xdp-") || n.starts_with("tcx-"));
            if ours {
                sys::remove_link(&pin).map_err(LoadError::io(&pin))?;
            }
            take(pin, ours, &mut removed.links, &mut removed.left)?;
        }
    }
    for folder in &versions {
        let current = version(folder) == Some(SCHEMA);
        for pin in entries(&folder.join("maps"))? {
            // Only this version's maps are known by name.
            let known = name(&pin).is_some_and(|n| MAPS.iter().any(|shape| shape.name == n));
            take(pin, known || !current, &mut removed.maps, &mut removed.left)?;
        }
    }
    for version in versions {
        for folder in [version.join("links"), version.join("maps"), version] {
            remove_folder(&folder, &mut removed.left)?;
        }
    }
    remove_folder(root, &mut removed.left)
}

fn take(
    pin: PathBuf,
    ours: bool,
    gone: &mut Vec<PathBuf>,
    left: &mut Vec<PathBuf>,
) -> Result<(), LoadError> {
    if !ours {
        left.push(pin);
        return Ok(());
    }
    remove(&pin)?;
    gone.push(pin);
    Ok(())
}

fn remove(pin: &Path) -> Result<(), LoadError> {
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LoadError::io(pin)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes an empty folder; one that is not empty holds what is not ours.
fn remove_folder(folder: &Path, left: &mut Vec<PathBuf>) -> Result<(), LoadError> {
    match fs::remove_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            left.push(folder.to_owned());
            Ok(())
        }
        Err(error) => Err(LoadError::io(folder)(error)),
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(LoadError::io(folder))?,
    };
    let mut paths = Vec::new();
    for entry in read {
        paths.push(entry.map_err(LoadError::io(folder))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The number of a folder like `v1`.
fn version(path: &Path) -> Option<u32> {
    name(path)?.strip_prefix('v')?.parse().ok()
}
