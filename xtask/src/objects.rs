//! The eBPF objects this workspace builds: one line each.

use std::path::PathBuf;

use crate::workspace;

/// One eBPF binary of the package `lb-ebpf`.
#[derive(Debug)]
pub(crate) struct Object {
    /// The binary's name in `lb-ebpf/Cargo.toml`.
    pub(crate) bin: &'static str,
    /// The cargo features it asks for (its `required-features`).
    pub(crate) features: &'static [&'static str],
    /// Whether the verifier budget watches its programs.
    pub(crate) budgeted: bool,
}

/// Every object, the product's first.
pub(crate) const OBJECTS: &[Object] = &[PRODUCT, FLOOR];

/// What the agent carries.
pub(crate) const PRODUCT: Object = Object {
    bin: "sluice",
    features: &["kernel"],
    budgeted: true,
};

/// What the bench compares it with.
pub(crate) const FLOOR: Object = Object {
    bin: "sluice-floor",
    features: &["floor"],
    budgeted: false,
};

impl Object {
    /// Where a built object is found, whatever toolchain built it.
    pub(crate) fn path(&self) -> PathBuf {
        directory().join(format!("{}.o", self.bin))
    }
}

/// The target directory of the eBPF builds, apart from the host's so that neither undoes the other.
pub(crate) fn directory() -> PathBuf {
    workspace::target().join("ebpf")
}
