//! Kubernetes' own programs for the cluster of `lab::cluster`: built once from source, by Go's module proxy.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use lab::cluster::Tools;

use crate::{run, setup, workspace};

/// They come from the same source: the version in `lab/kube/go.mod`.
const PACKAGE: &str = "k8s.io/kubernetes";

/// Installs and builds what is missing, and returns where it is.
pub(crate) fn ensure() -> Result<Tools> {
    setup::cluster()?;
    let folder = workspace::target().join("kube");
    let version = version()?;
    let stamp = folder.join("version");
    if std::fs::read_to_string(&stamp).is_ok_and(|built| built == version)
        && let Ok(tools) = Tools::find(&folder)
    {
        return Ok(tools);
    }
    std::fs::create_dir_all(&folder)?;
    let (major, rest) = version
        .trim_start_matches('v')
        .split_once('.')
        .context("no version")?;
    let minor = rest.split('.').next().unwrap_or(rest);
    let flags = ["gitVersion", "gitMajor", "gitMinor"]
        .iter()
        .zip([version.as_str(), major, minor])
        .map(|(name, value)| format!("-X k8s.io/component-base/version.{name}={value}"));
    let flags = format!("-s -w {}", flags.collect::<Vec<_>>().join(" "));
    for name in Tools::BUILT {
        run::step(&format!("building {name} {version} (minutes, once)"));
        let mut command = Command::new("go");
        command
            .current_dir(source())
            .env("CGO_ENABLED", "0")
            .args(["build", "-o"])
            .arg(folder.join(name))
            .args(["-ldflags", &flags, &format!("{PACKAGE}/cmd/{name}")]);
        run::checked(&mut command)?;
    }
    std::fs::write(&stamp, version)?;
    Tools::find(&folder)
}

fn source() -> PathBuf {
    workspace::root().join("lab/kube")
}

fn version() -> Result<String> {
    let path = source().join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let version = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(PACKAGE)?.strip_prefix(' '))
        .find_map(|rest| rest.split_whitespace().next());
    match version {
        Some(version) => Ok(version.to_owned()),
        None => bail!("{}: requires no {PACKAGE}", path.display()),
    }
}
