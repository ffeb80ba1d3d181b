//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in one namespace.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Kubectl, Tools, must_run, until};
use crate::{Ns, Proc};

/// Port of the API on the control plane's address.
pub const API_PORT: u16 = 6443;

const START: Duration = Duration::from_secs(90);

/// What users of the API are called, by their tokens' names.
const ADMIN: &str = "admin";

/// The control plane's processes; each can be stopped and started again.
#[derive(Debug)]
pub struct ControlPlane {
    /// As the administrator.
    pub kubectl: Kubectl,
    scheduler: Proc,
    controllers: Proc,
    api: Option<Proc>,
    etcd: Option<Proc>,
    ns: Ns,
    address: Ipv4Addr,
    dir: PathBuf,
    tools: Tools,
}

impl ControlPlane {
    pub(super) fn start(
        ns: &Ns,
        address: Ipv4Addr,
        dir: &Path,
        tools: &Tools,
        nodes: &[String],
    ) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        service_account_key(&dir.join("service-accounts.key"))?;
        tokens(&dir.join("tokens.csv"), nodes)?;
        let starter = Starter { ns, dir, tools };
        let mut etcd = starter.etcd()?;
        let mut api = starter.api(address)?;
        let certificate = dir.join("certs/apiserver.crt");
        until(START, "the API server's certificate", || {
            must_run("etcd", &mut etcd, &dir.join("etcd.log"))?;
            must_run("kube-apiserver", &mut api, &dir.join("kube-apiserver.log"))?;
            Ok(certificate.exists())
        })?;
        let admin = dir.join("admin.kubeconfig");
        kubeconfig(&admin, address, &certificate, ADMIN)?;
        let kubectl = Kubectl::new(ns, tools.path("kubectl"), &admin);
        until(START, "the API server to be ready", || {
            must_run("kube-apiserver", &mut api, &dir.join("kube-apiserver.log"))?;
            Ok(kubectl.run(&["get", "--raw", "/readyz"])? == "ok")
        })?;
        Ok(Self {
            controllers: starter.controllers(&admin, &certificate)?,
            scheduler: starter.scheduler(&admin)?,
            api: Some(api),
            etcd: Some(etcd),
            kubectl,
            ns: ns.clone(),
            address,
            dir: dir.to_owned(),
            tools: tools.clone(),
        })
    }

    /// Writes a kubeconfig for one of the users that [`tokens`] knows.
    pub(super) fn kubeconfig(&self, to: &Path, user: &str) -> Result<()> {
        kubeconfig(to, self.address, &self.certificate(), user)
    }

    /// The API's certificate, with its authority's.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("certs/apiserver.crt")
    }

    /// Where the API is.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Ends the API server, at once.
    pub fn stop_api(&mut self) -> Result<()> {
        match self.api.take() {
            Some(mut api) => api.kill().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Starts it again and waits until it is ready.
    pub fn start_api(&mut self) -> Result<()> {
        let mut api = self.starter().api(self.address)?;
        let log = self.dir.join("kube-apiserver.log");
        until(START, "the API server to be ready again", || {
            must_run("kube-apiserver", &mut api, &log)?;
            Ok(self.kubectl.run(&["get", "--raw", "/readyz"])? == "ok")
        })?;
        self.api = Some(api);
        Ok(())
    }

    /// Kills etcd and starts it again on what it had.
    pub fn restart_etcd(&mut self) -> Result<()> {
        if let Some(mut etcd) = self.etcd.take() {
            etcd.kill()?;
        }
        self.etcd = Some(self.starter().etcd()?);
        Ok(())
    }

    fn starter(&self) -> Starter<'_> {
        Starter {
            ns: &self.ns,
            dir: &self.dir,
            tools: &self.tools,
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Readers before what they read from; a process that has ended is no error.
        let _ = self.scheduler.kill();
        let _ = self.controllers.kill();
        let _ = self.stop_api();
    }
}

/// Starts its processes.
struct Starter<'a> {
    ns: &'a Ns,
    dir: &'a Path,
    tools: &'a Tools,
}

impl Starter<'_> {
    fn etcd(&self) -> Result<Proc> {
        let mut command = self.tools.command("etcd");
        command
            .arg("--data-dir")
            .arg(self.dir.join("etcd"))
            // Nothing of this outlives the test.
            .arg("--unsafe-no-fsync")
            .args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD])
            .args(["--listen-peer-urls", ETCD_PEER])
            .args(["--initial-advertise-peer-urls", ETCD_PEER])
            .args(["--initial-cluster", &format!("default={ETCD_PEER}")]);
        self.spawn("etcd", command)
    }

    fn api(&self, address: Ipv4Addr) -> Result<Proc> {
        let key = self.dir.join("service-accounts.key").display().to_string();
        let certs = self.dir.join("certs").display().to_string();
        let tokens = self.dir.join("tokens.csv").display().to_string();
        let mut command = self.tools.command("kube-apiserver");
        command.args([
            &format!("--etcd-servers={ETCD}"),
            &format!("--service-account-key-file={key}"),
            &format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc",
            &format!("--cert-dir={certs}"),
            &format!("--token-auth-file={tokens}"),
            "--authorization-mode=Node,RBAC",
            &format!("--service-cluster-ip-range={SERVICES}"),
            "--allow-privileged=true",
            &format!("--secure-port={API_PORT}"),
            &format!("--advertise-address={address}"),
        ]);
        self.spawn("kube-apiserver", command)
    }

    fn controllers(&self, admin: &Path, certificate: &Path) -> Result<Proc> {
        let key = self.dir.join("service-accounts.key");
        let mut command = self.tools.command("kube-controller-manager");
        command.args([
            &format!("--kubeconfig={}", admin.display()),
            &format!("--service-account-private-key-file={}", key.display()),
            &format!("--root-ca-file={}", certificate.display()),
            "--use-service-account-credentials",
            "--leader-elect=false",
        ]);
        self.spawn("kube-controller-manager", command)
    }

    fn scheduler(&self, admin: &Path) -> Result<Proc> {
        let mut command = self.tools.command("kube-scheduler");
        command.args([
            &format!("--kubeconfig={}", admin.display()),
            "--leader-elect=false",
        ]);
        self.spawn("kube-scheduler", command)
    }

    fn spawn(&self, name: &str, mut command: Command) -> Result<Proc> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{name}.log")))?;
        command
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.ns.spawn(command)
    }
}

/// Clients and peers of etcd are all on its own namespace's loopback.
const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";
/// Cluster addresses of Services.
const SERVICES: &str = "10.96.0.0/16";

fn service_account_key(to: &Path) -> Result<()> {
    let output = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(to)
        .arg("2048")
        .output()
        .context("running openssl")?;
    if !output.status.success() {
        bail!(
            "openssl genrsa: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// One token for each user, named as the user: secrets of a network that nobody can reach.
fn tokens(to: &Path, nodes: &[String]) -> Result<()> {
    let mut text = format!("{ADMIN},{ADMIN},1,system:masters\nkube-proxy,system:kube-proxy,2\n");
    for (index, node) in nodes.iter().enumerate() {
        let uid = 10 + index;
        text.extend([
            node,
            ",system:node:",
            node,
            ",",
            &uid.to_string(),
            ",system:nodes\n",
        ]);
    }
    std::fs::write(to, text).with_context(|| format!("writing {}", to.display()))
}

fn kubeconfig(to: &Path, address: Ipv4Addr, certificate: &Path, token: &str) -> Result<()> {
    let certificate = certificate.display();
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {{server: 'https://{address}:{API_PORT}', certificate-authority: {certificate}}}
users:
- name: {token}
  user: {{token: {token}}}
contexts:
- name: lab
  context: {{cluster: lab, user: {token}}}
current-context: lab
"
    );
    std::fs::write(to, text).with_context(|| format!("writing {}", to.display()))
}
