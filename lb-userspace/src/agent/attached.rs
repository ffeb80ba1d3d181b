//! Keeps the programs where they belong: on the interfaces asked for and on those by which replies may
//! leave, whatever becomes of either, and nowhere else.

use super::Agent;

impl Agent {
    /// Takes the programs of an earlier agent off interfaces that nobody asks for any more: nobody
    /// would look after them.
    pub(super) fn let_go(&mut self) -> anyhow::Result<()> {
        let asked = self.uplinks.keys().map(String::as_str);
        let asked: Vec<_> = asked.chain(self.exits.names()).collect();
        for pin in self.datapath.detach_others(&asked)? {
            tracing::info!(link = %pin.display(), "detached: its interface is not asked for any more");
        }
        Ok(())
    }

    /// Attaches to every interface that is there and has not got us, or has become another one.
    pub(super) fn attach(&mut self) {
        for (name, uplink) in &mut self.uplinks {
            let link = self.links.by_name(name);
            if uplink.follow(link, &mut self.datapath, self.settings.xdp_mode) {
                self.announcer.again();
            }
        }
        self.follow_default_routes();
        self.snapshot_due = true;
    }

    pub(super) fn follow_default_routes(&mut self) {
        self.exits
            .follow(&self.links, &self.uplinks, &mut self.datapath);
        self.snapshot_due = true;
    }

    /// Looks whether the kernel still holds what was attached; if not, attaches it again.
    pub(super) fn verify(&mut self) {
        let Err(error) = self.datapath.verify() else {
            return;
        };
        tracing::error!(%error, "the data plane is not what was attached; attaching again");
        let error = error.to_string();
        for uplink in self.uplinks.values_mut() {
            uplink.lost(&error);
        }
        self.exits.lost(&error);
        self.attach();
    }
}
