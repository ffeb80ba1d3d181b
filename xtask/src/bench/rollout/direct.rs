//! One pod, asked directly while it is stopped: how many connections that its kernel had accepted
//! a dying process loses by itself, with nobody in between.

use std::time::Duration;

use anyhow::Result;
use lab::Lab;
use lab::drive::Load;
use lab::load::{Options, Sources};
use lab::report::Traffic;
use lab::rollout::Fleet;
use lab::rollout::scenario::Setting;
use lab::serve::Kind;
use lab::stage::PORT;
use nix::sys::signal::Signal;

/// What the stops of one kind of pod cost.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Direct {
    #[serde(skip)]
    pub(super) kind: Kind,
    pub(super) letter: &'static str,
    pub(super) stops: usize,
    /// Failed after SYN-ACK.
    pub(super) after: u64,
}

/// Load before and after the stop.
const AROUND: Duration = Duration::from_millis(700);

/// Stops so many pods of this kind, each under its share of the load.
pub(super) fn run(setting: &Setting, kind: Kind, stops: usize) -> Result<Direct> {
    let mut lab = Lab::builder().pods(0).pod_routes(true).build()?;
    let mut fleet = Fleet::default();
    let mut after = 0;
    let share = setting.pods as u32;
    for _ in 0..stops {
        let id = fleet.start(&mut lab, kind)?;
        let target = std::net::SocketAddrV4::new(lab.pod(id).addr(), PORT);
        let client = lab.client(0);
        let mut options = Options::to(target);
        options.sources = Some(Sources(client.addrs().to_vec()));
        options.mix = Traffic::ALL.to_vec();
        options.rate = setting.rate / u64::from(share);
        options.keepalive_conns = options.keepalive_conns.div_ceil(share);
        options.downloads = options.downloads.div_ceil(share);
        options.idle_conns = options.idle_conns.div_ceil(share);
        options.udp_clients = options.udp_clients.div_ceil(share);
        options.duration = 60.0;
        let load = Load::start(client.netns(), &options)?;
        std::thread::sleep(AROUND);
        fleet.signal(id, Signal::SIGTERM)?;
        std::thread::sleep(AROUND);
        after += load.stop()?.total().after();
    }
    Ok(Direct {
        kind,
        letter: kind.letter(),
        stops,
        after,
    })
}
