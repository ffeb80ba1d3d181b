//! Where the programs of a cluster are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The folder of those that were built.
#[derive(Clone, Debug)]
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Programs of Kubernetes that are built from source.
    pub const BUILT: &[&str] = &[
        "kubectl",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
    ];

    /// Programs that the system has to have.
    pub const INSTALLED: &[&str] = &["etcd", "containerd", "ctr", "runc"];

    /// Tools of a folder; says which are missing.
    pub fn find(folder: &Path) -> Result<Self> {
        let missing: Vec<_> = Self::missing(folder);
        if !missing.is_empty() {
            bail!("no {} for a cluster", missing.join(", "));
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// What a cluster needs and this folder and the system do not have.
    pub fn missing(folder: &Path) -> Vec<&'static str> {
        let built = Self::BUILT
            .iter()
            .filter(|name| !folder.join(name).exists());
        let installed = Self::INSTALLED.iter().filter(|name| !on_path(name));
        built.chain(installed).copied().collect()
    }

    /// A command of this name.
    pub fn command(&self, name: &str) -> Command {
        Command::new(self.path(name))
    }

    /// Where it is, or its name when the system knows where.
    pub fn path(&self, name: &str) -> PathBuf {
        if Self::BUILT.contains(&name) {
            self.folder.join(name)
        } else {
            PathBuf::from(name)
        }
    }
}

fn on_path(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).exists())
}
