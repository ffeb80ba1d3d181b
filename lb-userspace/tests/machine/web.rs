//! curl and nginx, as everybody has them: 64 MiB through a VIP, and every byte right.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use lab::stage::{PORT, Stage};
use lab::teardown::TemporaryDir;
use lab::{LabBuilder, Ns, Proc};
use sha2::{Digest as _, Sha256};

use crate::{binary, builder, until};

/// A folder with something to download, and nginx configurations; removed when dropped.
pub(crate) struct Site {
    dir: TemporaryDir,
    /// SHA-256 of `/blob`, as `sha256sum` prints it.
    pub(crate) sum: String,
}

pub(crate) const SIZE: usize = 64 << 20;

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        let dir = TemporaryDir::new(&format!("site-{name}")).expect("folder");
        let mut blob = vec![0; SIZE];
        lab::payload::fill(7, 0, &mut blob);
        std::fs::write(dir.path().join("blob"), &blob).expect("blob");
        std::fs::write(dir.path().join("index.html"), "hello").expect("index");
        let digest = Sha256::digest(&blob);
        let sum = format!("{digest:x}");
        Self { dir, sum }
    }

    /// Starts nginx in a namespace; returns once it answers.
    pub(crate) fn nginx(&self, ns: &Ns, name: &str) -> Result<Proc> {
        let base = self.dir.path().join(name);
        std::fs::create_dir_all(&base)?;
        let (root, at) = (self.dir.path().display(), base.display());
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error;
             events {{}}
             http {{
                 access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;
                 fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
                 server {{ listen {PORT}; root {root}; }}
             }}"
        );
        let path = base.join("nginx.conf");
        std::fs::write(&path, config)?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&base).arg("-c").arg(&path);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let proc = ns.spawn(command).context("nginx")?;
        until("nginx answers", || {
            let url = format!("http://127.0.0.1:{PORT}/nginx.conf");
            ns.run("curl", &["-s", "-o", "/dev/null", &url]).is_ok()
        });
        Ok(proc)
    }
}

/// False, loudly, where a program is missing; a failure where CI is set.
pub(crate) fn have(programs: &[&str]) -> bool {
    for program in programs {
        let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin"]
            .iter()
            .any(|dir| Path::new(dir).join(program).exists());
        if !found {
            assert!(std::env::var_os("CI").is_none(), "{program} is missing");
            eprintln!("SKIPPED: needs {program}");
            return false;
        }
    }
    true
}

/// SHA-256 of what curl gets.
pub(crate) fn download(stage: &Stage, flags: &[&str]) -> Result<String> {
    let url = format!("http://{}/blob", stage.vip);
    let script = format!("curl -sS {} {url} | sha256sum", flags.join(" "));
    let out = stage.lab.client(0).netns().run("sh", &["-c", &script])?;
    let sum = out.split_whitespace().next().unwrap_or_default().to_owned();
    ensure!(!sum.is_empty(), "no sum: {out}");
    Ok(sum)
}

fn downloads(name: &str, shape: impl FnOnce(LabBuilder) -> LabBuilder, mode: &str) {
    let Some(builder) = builder(name) else { return };
    if !have(&["nginx", "curl"]) {
        return;
    }
    let site = Site::new(name);
    let mode = format!("--xdp-mode={mode}");
    let start = |ns: &Ns, uid: &str| site.nginx(ns, uid);
    let stage = Stage::serving(name, shape(builder), start, binary(), &[&mode]).expect("stage");
    for _ in 0..2 {
        assert_eq!(
            download(&stage, &["--max-time 60"]).expect("curl"),
            site.sum
        );
    }
}

#[test]
#[ignore = "root"]
fn curl_gets_64_mib_from_a_local_nginx_native() {
    downloads("nginx-local-native", |lab| lab.pods(2), "native");
}

#[test]
#[ignore = "root"]
fn curl_gets_64_mib_from_a_local_nginx_generic() {
    downloads("nginx-local-generic", |lab| lab.pods(2), "generic");
}

#[test]
#[ignore = "root"]
fn curl_gets_64_mib_from_a_lan_nginx_native() {
    downloads(
        "nginx-nat-native",
        |lab| lab.pods(0).lan_servers(2),
        "native",
    );
}

#[test]
#[ignore = "root"]
fn curl_gets_64_mib_from_a_lan_nginx_generic() {
    downloads(
        "nginx-nat-generic",
        |lab| lab.pods(0).lan_servers(2),
        "generic",
    );
}
