//! Pods of this node that end, known from the pods themselves.
//!
//! The API server marks a pod as deleted before the kubelet sends SIGTERM, and the EndpointSlice
//! says so only after a controller has seen it. In between a slice still calls the pod ready: here
//! it is read as it is going to be written. A pod that ends never comes back under the same uid,
//! so what is known once holds until no slice lists it; a list that is read again forgets nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::store::{Store, Touched};
use crate::watch::Change;
use crate::watch::object::{Pod, Slice, SliceEndpoint};

/// Above that many, those are forgotten that nothing lists any more.
const MANY: usize = 256;

/// What became of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It is being deleted.
    Ends,
    /// There is no such pod any more.
    Gone,
}

/// Pods that end or have ended, by uid.
#[derive(Debug, Default)]
pub(super) struct Endings {
    pods: Store<Pod>,
    fates: BTreeMap<String, Fate>,
}

impl Endings {
    /// Takes what a source says of pods; returns those of which something new is known.
    pub(super) fn apply(&mut self, change: Change<Pod>) -> Vec<String> {
        let mut news = Vec::new();
        for Touched { name, before } in self.pods.apply(change) {
            let now = self.pods.get(&name);
            let replaced = before.filter(|before| now.is_none_or(|now| now.uid != before.uid));
            let gone = replaced.map(|pod| (pod.uid, Fate::Gone));
            let ends = now.filter(|pod| pod.terminating);
            let ends = ends.map(|pod| (pod.uid.clone(), Fate::Ends));
            for (uid, fate) in gone.into_iter().chain(ends) {
                if self.fates.insert(uid.clone(), fate) != Some(fate) {
                    news.push(uid);
                }
            }
        }
        news
    }

    /// Forgets pods that are gone and not `listed`, once there are many.
    pub(super) fn forget_unless(&mut self, listed: impl Fn(&str) -> bool) {
        if self.fates.len() > MANY {
            self.fates
                .retain(|uid, fate| *fate == Fate::Ends || listed(uid));
        }
    }

    /// The slice as it is going to be written, with these pods' endings in it. With
    /// `publishNotReadyAddresses` a pod that ends stays ready, as long as there is one.
    pub(super) fn seen_in<'a>(&self, slice: &'a Slice, publish_not_ready: bool) -> Cow<'a, Slice> {
        let fate = |endpoint: &SliceEndpoint| self.fates.get(endpoint.uid.as_ref()?).copied();
        if self.fates.is_empty() || !slice.endpoints.iter().any(|e| fate(e).is_some()) {
            return Cow::Borrowed(slice);
        }
        let mut seen = slice.clone();
        for endpoint in &mut seen.endpoints {
            match fate(endpoint) {
                Some(Fate::Ends) => {
                    endpoint.terminating = Some(true);
                    if !publish_not_ready {
                        endpoint.ready = Some(false);
                    }
                }
                Some(Fate::Gone) => {
                    endpoint.terminating = Some(true);
                    endpoint.ready = Some(false);
                    endpoint.serving = Some(false);
                }
                None => {}
            }
        }
        Cow::Owned(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::ObjectName;

    fn pod(uid: &str, terminating: bool) -> Pod {
        let name = ObjectName {
            namespace: "shop".into(),
            name: "web-0".into(),
        };
        Pod {
            name,
            uid: uid.into(),
            terminating,
        }
    }

    /// Ready, serving, terminating of the endpoint with this uid, as the slice says and as it is
    /// seen.
    fn seen(endings: &Endings, uid: &str, publish: bool) -> [Option<bool>; 3] {
        let endpoint = SliceEndpoint {
            uid: Some(uid.into()),
            ..SliceEndpoint::default()
        };
        let slice = Slice {
            endpoints: vec![SliceEndpoint::default(), endpoint],
            ..Slice::default()
        };
        let seen = endings.seen_in(&slice, publish);
        assert_eq!(seen.endpoints[0], slice.endpoints[0], "not that pod's");
        let endpoint = &seen.endpoints[1];
        [endpoint.ready, endpoint.serving, endpoint.terminating]
    }

    const AS_WRITTEN: [Option<bool>; 3] = [None; 3];
    const ENDS: [Option<bool>; 3] = [Some(false), None, Some(true)];
    const GONE: [Option<bool>; 3] = [Some(false), Some(false), Some(true)];

    #[test]
    fn a_pod_ends_when_it_is_deleted_and_is_gone_when_it_has_left_the_list() {
        let mut endings = Endings::default();
        assert!(endings.apply(Change::Apply(pod("u1", false))).is_empty());
        assert_eq!(seen(&endings, "u1", false), AS_WRITTEN);
        assert_eq!(endings.apply(Change::Apply(pod("u1", true))), ["u1"]);
        assert_eq!(seen(&endings, "u1", false), ENDS);
        assert_eq!(
            seen(&endings, "u1", true),
            [None, None, Some(true)],
            "publishNotReadyAddresses: ready wins"
        );
        assert_eq!(endings.apply(Change::Delete(pod("u1", true).name)), ["u1"]);
        assert_eq!(seen(&endings, "u1", true), GONE);
        // A list that does not have it says nothing new, and makes nothing forgotten.
        endings.apply(Change::Init);
        assert!(endings.apply(Change::InitDone).is_empty());
        assert_eq!(seen(&endings, "u1", false), GONE);
    }

    #[test]
    fn a_new_pod_of_the_same_name_is_another_pod() {
        let mut endings = Endings::default();
        endings.apply(Change::Apply(pod("u1", false)));
        // Deleted and made anew while nobody listened: a StatefulSet's.
        endings.apply(Change::Init);
        endings.apply(Change::Apply(pod("u2", false)));
        assert_eq!(endings.apply(Change::InitDone), ["u1"]);
        assert_eq!(seen(&endings, "u1", false), GONE);
        assert_eq!(seen(&endings, "u2", false), AS_WRITTEN);
    }

    #[test]
    fn what_is_listed_is_not_forgotten_and_the_rest_does_not_grow() {
        let mut endings = Endings::default();
        for number in 0..=MANY {
            let uid = format!("u{number}");
            endings.apply(Change::Apply(pod(&uid, false)));
            endings.apply(Change::Delete(pod(&uid, false).name));
            endings.forget_unless(|uid| uid == "u7");
        }
        assert_eq!(seen(&endings, "u7", false), GONE);
        assert_eq!(endings.fates.len(), 1);
    }
}
