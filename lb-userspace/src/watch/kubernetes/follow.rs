//! One kind, for ever: list it, watch it from there, list it again when the watch cannot go on.
//!
//! The first list may come out of the API server's cache: it is the cheapest one there is, and the
//! watch that follows brings what the cache had missed. Every later list is a consistent one, page
//! by page: a cache that lags behind must not bring back what has been deleted since.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::pin;

use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent as Told};
use kube::{Client, Resource as _};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::item::{Item, Page};
use super::kind::Kind;
use super::pace::Pace;
use super::report::Report;
use super::standing::Standing;
use crate::desired::ObjectName;
use crate::watch::{Change, WatchEvent};

/// Changes that are told together when they are there together.
const BURST: usize = 256;
/// The agent does not listen any more.
#[derive(Debug, Error)]
#[error("the agent has hung up")]
pub(super) struct HungUp;

/// How a watch ended.
enum End {
    /// It has lived; it may be resumed at once.
    Lived,
    /// It ended as soon as it had begun.
    StillBorn,
    Failed(Failure),
}

/// Follows one kind.
pub(super) struct Follower<K: Kind> {
    client: Client,
    request: Request,
    fields: Option<String>,
    pace: Pace,
    report: Report,
    standing: Standing,
    /// A page had expired before it was asked for: ask for all at once.
    unpaged: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Follower<K> {
    pub(super) fn new(client: Client, fields: Option<String>, pace: Pace, report: Report) -> Self {
        Self {
            client,
            request: Request::new(K::Wire::url_path(&(), None)),
            fields,
            standing: Standing::new(K::RESOURCE, K::Wire::kind(&()).into_owned(), pace.clone()),
            pace,
            report,
            unpaged: false,
            kind: PhantomData,
        }
    }

    /// Until the agent hangs up.
    pub(super) async fn run(mut self) -> HungUp {
        let report = self.report.clone();
        tokio::select! {
            Err(over) = self.follow() => over,
            () = report.closed() => HungUp,
        }
    }

    async fn follow(&mut self) -> Result<Infallible, HungUp> {
        loop {
            let version = self.list().await?;
            self.watch(version).await?;
        }
    }

    /// Lists until it is done; returns the list's version.
    async fn list(&mut self) -> Result<String, HungUp> {
        loop {
            let failure = match self.try_list().await? {
                Ok(version) => {
                    self.unpaged = false;
                    self.standing.listed();
                    self.report.answered();
                    self.say().await?;
                    return Ok(version);
                }
                Err(failure) => failure,
            };
            let pause = if K::OPTIONAL && failure == Failure::Absent {
                let (pause, believed) = self.standing.absent();
                if believed {
                    let none = [Change::Init, Change::InitDone].map(K::event);
                    self.report.tell(none.into()).await?;
                }
                pause
            } else {
                self.unpaged |= failure == Failure::TooOld;
                self.standing.failed("list", &failure)
            };
            self.say().await?;
            let unreachable = self.standing.is_unreachable();
            self.report.wait(pause, unreachable).await;
        }
    }

    async fn try_list(&mut self) -> Result<Result<String, Failure>, HungUp> {
        let mut params = ListParams {
            label_selector: K::LABELS.map(str::to_owned),
            field_selector: self.fields.clone(),
            ..ListParams::default()
        };
        if !self.standing.is_listed() {
            // The cache knows no pages: a limit would make it a question for etcd.
            params = params.match_any();
        } else if !self.unpaged {
            params = params.limit(self.pace.page);
        }
        let mut broken = BTreeMap::new();
        let mut events = vec![K::event(Change::Init)];
        loop {
            let page = match self.page(&params).await {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            for item in page.items.unwrap_or_default() {
                events.push(K::event(take(item, &mut broken)));
            }
            if page.metadata.next.is_empty() {
                events.push(K::event(Change::InitDone));
                self.report.tell(events).await?;
                self.standing.broken = broken;
                return Ok(Ok(page.metadata.resource_version));
            }
            self.report.tell(std::mem::take(&mut events)).await?;
            params.continue_token = Some(page.metadata.next);
        }
    }

    async fn page(&self, params: &ListParams) -> Result<Page<K>, Failure> {
        let request = if K::METADATA {
            self.request.list_metadata(params)
        } else {
            self.request.list(params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = timeout(self.pace.answer, self.client.request_text(request)).await;
        let text = answer.map_err(|_elapsed| Failure::late())??;
        Ok(serde_json::from_str(&text).map_err(kube::Error::SerdeError)?)
    }

    /// Watches from there on, until a new list is needed.
    async fn watch(&mut self, mut version: String) -> Result<(), HungUp> {
        loop {
            let failure = match self.stream(&mut version).await? {
                End::Lived => continue,
                End::StillBorn => {
                    sleep(self.standing.pause()).await;
                    continue;
                }
                End::Failed(failure) => failure,
            };
            let pause = match failure {
                // That happens to everyone who was away for a while.
                Failure::TooOld => self.standing.pause(),
                Failure::Denied
                | Failure::Absent
                | Failure::Refused(_)
                | Failure::Unwell(_)
                | Failure::Unreachable(_) => self.standing.failed("watch", &failure),
            };
            self.say().await?;
            let unreachable = self.standing.is_unreachable();
            self.report.wait(pause, unreachable).await;
            match failure {
                Failure::Denied | Failure::Unwell(_) | Failure::Unreachable(_) => {}
                Failure::TooOld | Failure::Absent | Failure::Refused(_) => return Ok(()),
            }
        }
    }

    /// One watch, to its end.
    async fn stream(&mut self, version: &mut String) -> Result<End, HungUp> {
        let stream = match self.open(version).await {
            Ok(stream) => stream,
            Err(failure) => return Ok(End::Failed(failure)),
        };
        self.standing.granted();
        self.report.answered();
        self.say().await?;
        let mut stream = pin!(stream.ready_chunks(BURST));
        let mut lived = false;
        let mut settled = pin!(sleep(self.pace.settled));
        loop {
            let next = tokio::select! {
                next = timeout(self.pace.silence, stream.next()) => next,
                () = &mut settled, if !lived => {
                    lived = true;
                    self.standing.lives();
                    self.say().await?;
                    continue;
                }
            };
            let told = match next {
                Ok(Some(told)) => told,
                Ok(None) if lived => return Ok(End::Lived),
                Ok(None) => return Ok(End::StillBorn),
                Err(_silence) => {
                    let silence = self.pace.silence.as_secs();
                    tracing::debug!(
                        resource = K::RESOURCE,
                        silence,
                        "a watch said nothing for too long and is opened anew"
                    );
                    return Ok(End::Lived);
                }
            };
            let (events, failure) = self.hear(told, version);
            if !events.is_empty() {
                self.report.tell(events).await?;
                lived = true;
                self.standing.lives();
                self.say().await?;
            }
            if let Some(failure) = failure {
                return Ok(End::Failed(failure));
            }
        }
    }

    async fn open(
        &self,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<Told<Item<K>>>> + Send + use<K>, Failure> {
        let params = WatchParams {
            label_selector: K::LABELS.map(str::to_owned),
            field_selector: self.fields.clone(),
            timeout: Some(Pace::watch_seconds()),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = if K::METADATA {
            self.request.watch_metadata(&params, version)
        } else {
            self.request.watch(&params, version)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = timeout(self.pace.answer, self.client.request_events(request)).await;
        Ok(answer.map_err(|_elapsed| Failure::late())??)
    }

    /// Takes what a watch told: what to pass on, and why it cannot go on.
    fn hear(
        &mut self,
        told: Vec<kube::Result<Told<Item<K>>>>,
        version: &mut String,
    ) -> (Vec<WatchEvent>, Option<Failure>) {
        let mut events = Vec::new();
        for told in told {
            let now = match told {
                Ok(Told::Added(item) | Told::Modified(item)) => {
                    let now = item.version.clone();
                    events.push(K::event(take(item, &mut self.standing.broken)));
                    now
                }
                Ok(Told::Deleted(item)) => {
                    self.standing.broken.remove(&item.name);
                    events.push(K::event(Change::Delete(item.name)));
                    item.version
                }
                Ok(Told::Bookmark(bookmark)) => bookmark.metadata.resource_version,
                Ok(Told::Error(status)) => return (events, Some(Failure::of_status(&status))),
                Err(error) => return (events, Some(error.into())),
            };
            if !now.is_empty() {
                *version = now;
            }
        }
        (events, None)
    }

    /// Says what is wrong now, if that is news.
    async fn say(&self) -> Result<(), HungUp> {
        let trouble = self.standing.trouble();
        self.report.trouble(K::RESOURCE, trouble).await
    }
}

/// What an object's new version means; one that cannot be read is noted.
fn take<K: Kind>(item: Item<K>, broken: &mut BTreeMap<ObjectName, String>) -> Change<K::Slim> {
    match item.object {
        Ok(object) => {
            broken.remove(&item.name);
            Change::Apply(object)
        }
        Err(why) => {
            broken.insert(item.name.clone(), why);
            Change::Keep(item.name)
        }
    }
}
