//! Where pins live: `<root>/v<schema>/maps/<map>` and `<root>/v<schema>/links/<kind>-<interface>`.
//!
//! The folders are made here, and a missing bpf filesystem is mounted where everybody expects it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use lb_common::abi::SCHEMA;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::LoadError;

/// Where bpf filesystems are mounted.
const BPF_FS: &str = "/sys/fs/bpf";

/// Where pins live unless told otherwise.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/sluice";

/// The folders of one agent.
#[derive(Clone, Debug)]
pub struct Pins {
    root: PathBuf,
}

impl Pins {
    /// The folders under this root, as they would be.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the folders, and mounts a bpf filesystem if the usual one is missing.
    pub fn prepare(root: &Path) -> Result<Self, LoadError> {
        mount_if_missing(root)?;
        let pins = Self::new(root);
        for folder in [pins.maps(), pins.links()] {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder);
            made.map_err(LoadError::io(&folder))?;
        }
        Ok(pins)
    }

    /// The pin directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of this version's pins.
    pub fn version(&self) -> PathBuf {
        self.root.join(format!("v{SCHEMA}"))
    }

    /// Folder of the maps.
    pub fn maps(&self) -> PathBuf {
        self.version().join("maps")
    }

    /// Pin of a map.
    pub fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// Folder of the links.
    pub fn links(&self) -> PathBuf {
        self.version().join("links")
    }

    /// Pin of an interface's XDP link.
    pub fn xdp(&self, interface: &str) -> PathBuf {
        self.links().join(format!("xdp-{}", escape(interface)))
    }

    /// Pin of an interface's egress link.
    pub fn egress(&self, interface: &str) -> PathBuf {
        self.links().join(format!("tcx-{}", escape(interface)))
    }
}

/// A bpf filesystem allows no dots in names, and interfaces may have them (`eth0.5`).
fn escape(interface: &str) -> String {
    interface.replace('%', "%25").replace('.', "%2e")
}

/// True when the path, or the nearest folder above it that exists, is on a bpf filesystem.
pub(super) fn on_bpf_fs(path: &Path) -> bool {
    path.ancestors()
        .find_map(|folder| statfs(folder).ok())
        .is_some_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC)
}

fn mount_if_missing(root: &Path) -> Result<(), LoadError> {
    if on_bpf_fs(root) {
        return Ok(());
    }
    let path = root.to_owned();
    if !root.starts_with(BPF_FS) {
        return Err(LoadError::NoBpfFs { path, source: None });
    }
    tracing::info!("mounting a bpf filesystem on {BPF_FS}");
    mount(
        Some("bpf"),
        BPF_FS,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(|errno| LoadError::NoBpfFs {
        path,
        source: Some(io::Error::from(errno)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_say_what_they_are() {
        let pins = Pins::new("/sys/fs/bpf/sluice");
        let text = |path: PathBuf| path.display().to_string();
        assert_eq!(text(pins.map("flows")), "/sys/fs/bpf/sluice/v1/maps/flows");
        assert_eq!(
            text(pins.xdp("eth0")),
            "/sys/fs/bpf/sluice/v1/links/xdp-eth0"
        );
        assert_eq!(
            text(pins.egress("eth0.5")),
            "/sys/fs/bpf/sluice/v1/links/tcx-eth0%2e5"
        );
    }

    #[test]
    fn elsewhere_is_refused_with_the_way_out() {
        let error = Pins::prepare(Path::new("/tmp/no-bpf-here")).expect_err("no bpffs");
        assert!(
            error.to_string().contains("mount -t bpf bpf /sys/fs/bpf"),
            "{error}"
        );
        assert!(!Path::new("/tmp/no-bpf-here").exists());
    }
}
