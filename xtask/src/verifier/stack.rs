//! The stack depth of each program, from the verifier's log.
//!
//! The kernel tells it in the log of a successful load only, which aya does not hand out, so
//! `bpftool` loads the object a second time. That also proves that libbpf can read the maps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::bpffs::{self, BPFFS};
use crate::objects::Object;
use crate::run;

/// Per program: the depths of its call chain's frames ("208+64"), in bytes.
pub(super) fn depths(object: &Object, logs: &Path) -> Result<BTreeMap<String, String>> {
    if run::quiet(Command::new("bpftool").arg("version")).is_none() {
        println!("    bpftool is missing: no stack depths (`cargo xtask setup` installs it)");
        return Ok(BTreeMap::new());
    }
    bpffs::mount()?;
    fs::create_dir_all(logs).with_context(|| logs.display().to_string())?;
    let path = logs.join(format!("{}.log", object.bin));
    let log = fs::File::create(&path).with_context(|| path.display().to_string())?;
    let errors = log.try_clone().context("log file")?;
    let pins = Pins(format!("{BPFFS}/sluice-verifier-{}", std::process::id()));
    let status = run::status(
        Command::new("bpftool")
            .args(["--debug", "prog", "loadall"])
            .arg(object.path())
            .arg(&pins.0)
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(errors)),
    )?;
    drop(pins);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    println!("    the verifier's log: {}", path.display());
    if !status.success() {
        bail!(
            "bpftool could not load {} ({status})",
            object.path().display()
        );
    }
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Reads the depths out of libbpf's debug output.
fn parse(log: &str) -> BTreeMap<String, String> {
    let mut depths = BTreeMap::new();
    let mut program = None;
    for line in log.lines() {
        if let Some(rest) = line.strip_prefix("libbpf: prog '") {
            program = rest.split('\'').next();
        } else if let Some(depth) = line.strip_prefix("stack depth ")
            && let Some(name) = program
        {
            depths.insert(name.to_owned(), depth.trim().to_owned());
        }
    }
    depths
}

/// A folder of pins that goes when this does, also when the load failed half-way.
struct Pins(String);

impl Drop for Pins {
    fn drop(&mut self) {
        if Path::new(&self.0).exists()
            && let Err(error) = fs::remove_dir_all(&self.0)
        {
            eprintln!("verifier: {} could not be removed: {error}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn depths_belong_to_the_program_named_before_them() {
        let log = "libbpf: prog 'a': -- BEGIN PROG LOAD LOG --\n\
                   stack depth 208+64\nprocessed 9 insns\n\
                   libbpf: prog 'b': -- BEGIN PROG LOAD LOG --\nstack depth 0\n";
        let depths = parse(log);
        assert_eq!(depths.get("a").map(String::as_str), Some("208+64"));
        assert_eq!(depths.get("b").map(String::as_str), Some("0"));
    }
}
