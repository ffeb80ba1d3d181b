//! A real node: containerd, kubelet and kube-proxy in one lab node's network namespace.
//!
//! containerd and kubelet share a process and a mount namespace whose first process is ours: killed, the kernel ends
//! every container and undoes every mount. `/run/netns` and `/run/containerd` are the node's own there, so that two
//! nodes never see each other's pods.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{ControlPlane, Options, must_run, tail, until};
use crate::cgroups;
use crate::topology::POD_BRIDGE;
use crate::{Node, Ns, Proc};

/// kube-proxy's mode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProxyMode {
    /// nftables.
    #[default]
    Nftables,
    /// iptables.
    Iptables,
}

const START: Duration = Duration::from_mins(1);

/// One node's processes.
#[derive(Debug)]
pub struct Worker {
    proxy: Option<Proc>,
    init: Proc,
    ns: Ns,
    dir: PathBuf,
    socket: PathBuf,
    ctr: PathBuf,
    name: String,
}

impl Worker {
    pub(super) fn start(
        node: &Node,
        dir: &Path,
        control_plane: &ControlPlane,
        options: &Options,
    ) -> Result<Self> {
        let (ns, name) = (node.netns().clone(), node.name());
        for folder in ["cni", "run", "kubelet", "ipam", "logs"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        let socket = dir.join("run/containerd.sock");
        write(dir, "containerd.toml", &containerd(dir, &options.pause))?;
        write(dir, "cni/10-bridge.conf", &cni(dir, &node.pod_subnet()))?;
        let cgroup = ns.name().to_owned();
        write(dir, "kubelet.yaml", &kubelet(&socket, &cgroup))?;
        control_plane.kubeconfig(&dir.join("kubelet.kubeconfig"), &name)?;
        control_plane.kubeconfig(&dir.join("kube-proxy.kubeconfig"), "kube-proxy")?;

        let path = dir.display();
        let kubelet = format!(
            "{} --config={path}/kubelet.yaml --kubeconfig={path}/kubelet.kubeconfig \
             --hostname-override={name} --node-ip={} --root-dir={path}/kubelet --cert-dir={path}/pki",
            options.tools.path("kubelet").display(),
            node.addr()
        );
        // The first process waits for images, which come by containerd, before the kubelet asks for them.
        let script = format!(
            "mount --make-rprivate / && mkdir -p /run/containerd /run/netns /var/log/pods /var/log/containers &&
             mount -t tmpfs tmpfs /run/containerd && mount -t tmpfs tmpfs /run/netns &&
             mount --bind {path}/logs /var/log/pods && mount --make-rshared / || exit 1
             containerd --config {path}/containerd.toml >>{path}/containerd.log 2>&1 &
             while ! test -e {path}/go; do sleep 0.05; done
             {kubelet} >>{path}/kubelet.log 2>&1
             echo \"kubelet ended: $?\" >>{path}/kubelet.log"
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let init = ns.spawn(command)?;
        let mut worker = Self {
            proxy: None,
            init,
            ns,
            dir: dir.to_owned(),
            socket,
            ctr: options.tools.path("ctr"),
            name,
        };
        until(START, "containerd to answer", || {
            must_run("containerd", &mut worker.init, &dir.join("containerd.log"))?;
            worker.ctr(&["version"]).map(|_| true)
        })?;
        for image in &options.images {
            let image = image.display().to_string();
            worker.ctr(&["-n", "k8s.io", "images", "import", &image])?;
        }
        write(dir, "go", "")?;
        worker.start_proxy(options)?;
        Ok(worker)
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ctr` against this node's containerd.
    pub fn ctr(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.ctr);
        command.arg("--address").arg(&self.socket).args(args);
        let output = command.output().context("running ctr")?;
        if !output.status.success() {
            bail!(
                "ctr {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The ends of its logs.
    pub fn log(&self) -> String {
        let logs = ["containerd.log", "kubelet.log", "kube-proxy.log"];
        let tails =
            logs.map(|log| format!("== {} {log}\n{}", self.name, tail(&self.dir.join(log))));
        tails.join("\n")
    }

    /// Its namespace.
    pub fn netns(&self) -> &Ns {
        &self.ns
    }

    fn start_proxy(&mut self, options: &Options) -> Result<()> {
        let mut command = options.tools.command("kube-proxy");
        let log = std::fs::File::create(self.dir.join("kube-proxy.log"))?;
        let kubeconfig = self.dir.join("kube-proxy.kubeconfig");
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--hostname-override={}", self.name))
            .arg(match options.proxy {
                ProxyMode::Nftables => "--proxy-mode=nftables",
                ProxyMode::Iptables => "--proxy-mode=iptables",
            })
            // These sysctls are the machine's, not a namespace's.
            .args(["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s"])
            .args(["--conntrack-tcp-timeout-close-wait=0s", "--cluster-cidr=10.244.0.0/16"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.proxy = Some(self.ns.spawn(command)?);
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What they were in can go only after they have.
        let _ = self.init.kill();
        cgroups::remove(self.ns.name());
    }
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

fn containerd(dir: &Path, pause: &str) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
address = "{dir}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{dir}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    )
}

fn cni(dir: &Path, subnet: &str) -> String {
    let ipam = dir.join("ipam");
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "lab", "type": "bridge", "bridge": "{POD_BRIDGE}",
 "isGateway": true, "ipMasq": false,
 "ipam": {{"type": "host-local", "dataDir": "{}", "ranges": [[{{"subnet": "{subnet}"}}]],
  "routes": [{{"dst": "0.0.0.0/0"}}]}}}}"#,
        ipam.display()
    )
}

fn kubelet(socket: &Path, cgroup: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{}
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
evictionHard: {{memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
resolvConf: ''
healthzPort: 0
# A node's test is shorter than a minute: what changes is to be seen at once.
syncFrequency: 5s
",
        socket.display()
    )
}
