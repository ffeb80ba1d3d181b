//! Finds the eBPF object that goes into `sluice` and tells the compiler its path.
//!
//! `SLUICE_EBPF_OBJECT` names it; unset, it is the one `cargo xtask build` leaves in the target
//! directory. Without any, an empty file stands in, so that lints and tests of pure code
//! need no BPF toolchain; the agent then says what is missing.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, io};

const VARIABLE: &str = "SLUICE_EBPF_OBJECT";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    let object = match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => named(Path::new(&path))?,
        None => default()?,
    };
    println!("cargo::rerun-if-changed={}", object.display());
    println!("cargo::rustc-env={VARIABLE}={}", object.display());
    Ok(())
}

/// An object that was asked for must exist: an empty stand-in would hide a typo.
fn named(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{VARIABLE}={}: {error}", path.display()),
        )
    })
}

/// The default object. An empty one is put in its place when there is none: cargo takes a
/// watched file that is absent for a change, and would compile this crate anew each time.
fn default() -> io::Result<PathBuf> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = manifest.parent().unwrap_or(&manifest);
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let object = target.join("ebpf").join("sluice.o");
    if object.is_file() {
        return Ok(object);
    }
    if stand_in(&object).is_ok() {
        return Ok(object);
    }
    let empty = PathBuf::from(variable("OUT_DIR")?).join("empty.o");
    fs::write(&empty, [])?;
    Ok(empty)
}

/// Dated back, or cargo would see a file that changed after this script had started.
fn stand_in(object: &Path) -> io::Result<()> {
    if let Some(folder) = object.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create(object)?.set_modified(SystemTime::UNIX_EPOCH)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}
