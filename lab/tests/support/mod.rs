//! What all lab tests need: root or a loud skip, and teardown on Ctrl-C.

use lab::LabBuilder;

/// A builder, or `None` (said loudly) where there is no root; with `CI` set a skip is a failure.
pub(crate) fn lab_or_skip(test: &str) -> Option<LabBuilder> {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return Some(lab::Lab::builder());
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs root, and CI is set: a skip would hide it"
    );
    eprintln!("SKIPPED: needs root: {test}");
    None
}
