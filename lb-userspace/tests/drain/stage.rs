//! What the tests of draining stand on: a lab with an agent, and manifests that change.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::agent::Agent;
use lab::drive::Server;
use lab::manifests::Manifests;
use lab::{Lab, LabBuilder, Ns, PodId, Proc};
use lb_userspace::observe::pins::PinnedMaps;
use lb_userspace::observe::state::{EndpointStateEntry, FrontendState, StateSnapshot};
use lb_userspace::timer::drain::DrainRecord;
use serde_json::{Value, json};

/// The endpoints' port.
pub(crate) const PORT: u16 = 8080;

/// A builder; without root a loud skip, and a failure where CI is set.
pub(crate) fn builder(test: &str) -> Option<LabBuilder> {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return Some(Lab::builder());
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs root, and CI is set"
    );
    eprintln!("SKIPPED: needs root: {test}");
    None
}

/// One entry of the Service's slice.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) address: std::net::Ipv4Addr,
    pub(crate) node: Option<&'static str>,
    pub(crate) uid: String,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
}

/// A Service of type LoadBalancer, TCP and UDP.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) vip: SocketAddrV4,
    pub(crate) drain_timeout: Option<&'static str>,
    pub(crate) endpoints: Vec<Listed>,
}

/// A lab with an agent and the Services that its manifests hold.
pub(crate) struct Stage {
    // Dropped in this order: the agent detaches before its namespace goes.
    pub(crate) agent: Agent,
    pub(crate) servers: Vec<Option<Proc>>,
    pub(crate) manifests: Manifests,
    pub(crate) lab: Lab,
    pub(crate) vip: SocketAddrV4,
}

impl Stage {
    /// Pods and LAN servers of the lab behind one Service, all ready.
    pub(crate) fn new(name: &str, builder: LabBuilder, args: &[&str]) -> Self {
        let lab = builder.build().expect("lab");
        let vip = SocketAddrV4::new(Lab::vip(0), 80);
        let start = |name: String, ns: &Ns| Some(Server::named(name).start(ns).expect("server"));
        let pods = lab.pods();
        let servers = lab.lan_servers().iter().enumerate();
        let servers = pods
            .map(|pod| start(format!("pod-{}", pod.id()), pod.netns()))
            .chain(servers.map(|(i, server)| start(format!("lan-{i}"), server.netns())))
            .collect();
        let manifests = Manifests::create(name).expect("manifests");
        write(&manifests, &[all_ready(&lab, vip)]);
        let binary = Path::new(env!("CARGO_BIN_EXE_sluice"));
        let ns = lab.node(0).netns();
        let agent = Agent::start(ns, binary, manifests.dir(), args).expect("agent");
        Self {
            agent,
            servers,
            manifests,
            lab,
            vip,
        }
    }

    /// The Service as it was at first.
    pub(crate) fn service(&self) -> Service {
        all_ready(&self.lab, self.vip)
    }

    /// Replaces the manifests.
    pub(crate) fn write(&self, services: &[Service]) {
        write(&self.manifests, services);
    }

    /// Connects from the client and asks for the server's name.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.lab.client(0).netns(), self.vip).expect("connects")
    }

    /// A connection to this server; others are closed.
    pub(crate) fn connect_to(&self, name: &str) -> Client {
        for _ in 0..200 {
            let client = self.connect();
            if client.server == name {
                return client;
            }
        }
        panic!("no connection went to {name}");
    }

    /// Kills a pod together with its namespace and its server.
    pub(crate) fn kill_pod(&mut self, id: PodId) {
        self.lab.kill_pod(id).expect("killed");
        self.servers[id] = None;
    }

    /// The records in the pinned map.
    pub(crate) fn records(&self) -> Vec<DrainRecord> {
        let maps = PinnedMaps::open(self.agent.pins()).expect("pins");
        maps.drains().expect("records")
    }

    /// What the agent says of itself.
    pub(crate) fn state(&self) -> StateSnapshot {
        let answer = self.agent.get("/state").expect("answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("a snapshot")
    }

    /// The frontend of this protocol at a VIP and port, as the agent sees it.
    pub(crate) fn frontend(&self, vip: SocketAddrV4, protocol: &str) -> Option<FrontendState> {
        let frontends = self.state().frontends.into_iter();
        let mut at = frontends.filter(|frontend| {
            frontend.address == Some((*vip.ip()).into()) && frontend.port == vip.port()
        });
        at.find(|frontend| frontend.protocol == protocol)
    }

    /// The lives of a pod's TCP endpoint, as the agent sees them.
    pub(crate) fn lives(&self, address: std::net::Ipv4Addr) -> Vec<EndpointStateEntry> {
        let frontend = self.frontend(self.vip, "TCP").expect("the Service's");
        let address = Some(SocketAddr::from((address, PORT)));
        let mut lives = frontend.endpoints;
        lives.retain(|life| life.address == address);
        lives
    }

    /// Waits until something holds, and says how long that took.
    pub(crate) fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> Duration {
        let started = Instant::now();
        while !holds(self) {
            assert!(
                started.elapsed() < limit,
                "not after {limit:?}: {what}\n{}\n{}\n{}",
                self.agent
                    .command(&["endpoints"])
                    .unwrap_or_else(|error| format!("{error:#}")),
                self.agent.command(&["status"]).unwrap_or_default(),
                self.agent.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        started.elapsed()
    }
}

fn all_ready(lab: &Lab, vip: SocketAddrV4) -> Service {
    let ready = |address, node, uid| Listed {
        address,
        node,
        uid,
        ready: true,
        terminating: false,
    };
    let pods = lab
        .pods()
        .map(|pod| ready(pod.addr(), Some("n0"), format!("pod-{}", pod.id())));
    let servers = lab.lan_servers().iter().enumerate();
    let servers = servers.map(|(i, server)| ready(server.addr(), None, format!("lan-{i}")));
    Service {
        name: "web",
        vip,
        drain_timeout: None,
        endpoints: pods.chain(servers).collect(),
    }
}

/// Writes all there is into one file, renamed into place.
fn write(manifests: &Manifests, services: &[Service]) {
    let mut items = vec![
        json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "lab"},
               "spec": {"addresses": ["192.0.2.64-192.0.2.127"]}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"},
               "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ];
    for service in services {
        items.extend(objects(service));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let new = manifests.dir().join(".new");
    std::fs::write(&new, list.to_string()).expect("written");
    std::fs::rename(&new, manifests.dir().join("all.json")).expect("renamed");
}

fn objects(service: &Service) -> [Value; 2] {
    let protocols = [("TCP", "tcp"), ("UDP", "udp")];
    let ports = |port: u16| {
        protocols.map(|(protocol, name)| json!({"name": name, "port": port, "protocol": protocol}))
    };
    let mut annotations = json!({"sluice.dev/addresses": service.vip.ip().to_string()});
    if let Some(timeout) = service.drain_timeout {
        annotations["sluice.dev/drain-timeout"] = timeout.into();
    }
    let endpoints: Vec<_> = service.endpoints.iter().map(endpoint).collect();
    [
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": service.name, "namespace": "lab", "annotations": annotations},
               "spec": {"type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
                        "ports": ports(service.vip.port())}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
               "metadata": {"name": format!("{}-1", service.name), "namespace": "lab",
                            "labels": {"kubernetes.io/service-name": service.name}},
               "addressType": "IPv4", "ports": ports(PORT), "endpoints": endpoints}),
    ]
}

fn endpoint(listed: &Listed) -> Value {
    json!({
        "addresses": [listed.address.to_string()],
        "nodeName": listed.node,
        "targetRef": {"kind": "Pod", "name": listed.uid, "uid": listed.uid},
        "conditions": {"ready": listed.ready, "serving": listed.ready || listed.terminating,
                       "terminating": listed.terminating},
    })
}

/// A connection that is kept, and whose server has said its name.
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) server: String,
}

impl Client {
    /// Connects inside a namespace and asks once.
    pub(crate) fn connect(ns: &Ns, to: SocketAddrV4) -> std::io::Result<Self> {
        let stream = ns
            .enter(|| TcpStream::connect_timeout(&to.into(), Duration::from_secs(5)))
            .expect("enters")?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut client = Self {
            stream,
            server: String::new(),
        };
        client.server = client.ask()?;
        Ok(client)
    }

    /// Asks for the server's name.
    pub(crate) fn ask(&mut self) -> std::io::Result<String> {
        self.stream
            .write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")?;
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        while !answer.ends_with(b"\n") || !answer.windows(4).any(|w| w == b"\r\n\r\n") {
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => answer.extend_from_slice(&buffer[..read]),
            }
        }
        let text = String::from_utf8_lossy(&answer);
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        Ok(body.split(' ').next().unwrap_or_default().to_owned())
    }

    /// Fetches this many bytes.
    pub(crate) fn fetch(&mut self, bytes: usize) -> std::io::Result<()> {
        let request = format!("GET /bytes/{bytes}?seed=1 HTTP/1.1\r\nHost: lab\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let (mut head, mut body) = (Vec::new(), 0);
        let mut buffer = vec![0; 64 * 1024];
        while body < bytes {
            let read = match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            if body > 0 {
                body += read;
                continue;
            }
            head.extend_from_slice(&buffer[..read]);
            let end = head.windows(4).position(|w| w == b"\r\n\r\n");
            body = end.map_or(0, |end| head.len() - end - 4);
        }
        Ok(())
    }

    /// Says nothing and waits for what becomes of the connection: the error that ended it, or
    /// none when it is still there after this time.
    pub(crate) fn listen(&mut self, limit: Duration) -> Option<ErrorKind> {
        self.stream.set_read_timeout(Some(limit)).expect("set");
        match self.stream.read(&mut [0; 16]) {
            Ok(0) => Some(ErrorKind::UnexpectedEof),
            Ok(read) => panic!("{read} bytes that nobody asked for"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(error.kind()),
        }
    }
}
