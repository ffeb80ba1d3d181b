//! Container images without a builder or a registry: an OCI image layout in one tar file.
//!
//! One layer, one config, one manifest, one index (the OCI image-layout specification 1.0, which `ctr images
//! import`, `docker load` and `skopeo` read). The same input gives the same bytes: no times, no host names. It must
//! never put into an image what it was not asked to.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What an image consists of.
#[derive(Clone, Debug)]
pub struct Image {
    /// Full name with tag, such as `docker.io/library/sluice:0.1.0`: what pods ask for once it is imported.
    pub name: String,
    /// Files: from where on this machine, to where in the image; all executable, owned by root.
    pub files: Vec<(PathBuf, String)>,
    /// What it runs.
    pub entrypoint: Vec<String>,
    /// Who runs it, as `uid:gid`.
    pub user: String,
}

impl Image {
    /// Writes it.
    pub fn write(&self, to: &Path) -> Result<()> {
        let layer = self.layer()?;
        let config = serde_json::to_vec(&json!({
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "User": self.user, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created_by": "cargo xtask image"}],
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        }))?;
        let mut entry = descriptor(MANIFEST, &manifest);
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
        });
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;

        let write = || -> Result<()> {
            let mut tar = tar::Builder::new(File::create(to)?);
            append(
                &mut tar,
                "oci-layout",
                br#"{"imageLayoutVersion":"1.0.0"}"#,
                0o644,
            )?;
            append(&mut tar, "index.json", &index, 0o644)?;
            for blob in [&manifest, &config, &layer] {
                let name = digest(blob).replace(':', "/");
                append(&mut tar, &format!("blobs/{name}"), blob, 0o644)?;
            }
            tar.into_inner()?.flush()?;
            Ok(())
        };
        write().with_context(|| format!("writing the image {}", to.display()))
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (from, to) in &self.files {
            let bytes = std::fs::read(from)
                .with_context(|| format!("reading {} for the image", from.display()))?;
            append(&mut tar, to.trim_start_matches('/'), &bytes, 0o755)?;
        }
        Ok(tar.into_inner()?)
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// This machine's name among Go's, which images use.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    let hash = Sha256::digest(blob);
    format!("sha256:{}", crate::payload::hex(&hash))
}

fn append<W: std::io::Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    bytes: &[u8],
    mode: u32,
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    tar.append_data(&mut header, name, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn entries(path: &Path) -> Vec<(String, Vec<u8>)> {
        let mut archive = tar::Archive::new(File::open(path).expect("open"));
        let entries = archive.entries().expect("entries");
        entries
            .map(|entry| {
                let mut entry = entry.expect("entry");
                let name = entry.path().expect("path").display().to_string();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).expect("read");
                (name, bytes)
            })
            .collect()
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_the_index_leads_to_the_files() {
        let folder = tempfile::tempdir().expect("folder");
        let program = folder.path().join("program");
        std::fs::write(&program, "a program").expect("write");
        let image = Image {
            name: "docker.io/library/test:1".to_owned(),
            files: vec![(program, "/bin/test".to_owned())],
            entrypoint: vec!["/bin/test".to_owned()],
            user: "0:0".to_owned(),
        };
        let (first, second) = (folder.path().join("1.tar"), folder.path().join("2.tar"));
        image.write(&first).expect("first");
        image.write(&second).expect("second");
        let bytes = std::fs::read(&first).expect("read");
        assert_eq!(
            bytes,
            std::fs::read(&second).expect("read"),
            "not the same twice"
        );

        let entries = entries(&first);
        let find = |digest: &Value| {
            let name = format!(
                "blobs/{}",
                digest.as_str().expect("digest").replace(':', "/")
            );
            let blob = entries
                .iter()
                .find(|(entry, _)| *entry == name)
                .expect("blob");
            assert_eq!(digest.as_str(), Some(super::digest(&blob.1).as_str()));
            blob.1.clone()
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let index = entries
            .iter()
            .find(|(name, _)| name == "index.json")
            .expect("index");
        let entry = &json(&index.1)["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], image.name);
        let manifest = json(&find(&entry["digest"]));
        let layer = find(&manifest["layers"][0]["digest"]);
        let config = json(&find(&manifest["config"]["digest"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], super::digest(&layer));
        let mut files = tar::Archive::new(layer.as_slice());
        let file = files
            .entries()
            .expect("entries")
            .next()
            .expect("a file")
            .expect("entry");
        assert_eq!(file.path().expect("path"), Path::new("bin/test"));
        assert_eq!(file.header().mode().expect("mode"), 0o755);
    }
}
