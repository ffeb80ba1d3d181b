//! An API server that does as it is told: lists out of a cache or in pages, watches from a version,
//! bookmarks, and everything that goes wrong with them.
//!
//! It keeps one history for all kinds, as etcd does, so that a watch gets exactly what happened
//! after its version. Faults are set per resource and verb and stay until they are lifted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use kube::{Client, Config};
use serde_json::{Value, json};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// This status instead of an answer.
    Status(u16),
    /// No answer at all.
    Hangs,
    /// The stream ends as soon as it has begun.
    Cut,
    /// The stream has this error in it as soon as it has begun.
    InStream(u16),
    /// The second page of a list is answered by this status.
    SecondPage(u16),
}

/// One question that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) resource: String,
    /// `list` or `watch`.
    pub(crate) verb: &'static str,
    pub(crate) query: HashMap<String, String>,
    pub(crate) accept: String,
}

impl Asked {
    pub(crate) fn of(&self, resource: &str, verb: &str) -> bool {
        self.resource == resource && self.verb == verb
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }
}

struct Watcher {
    resource: String,
    lines: UnboundedSender<Result<Bytes, Infallible>>,
}

#[derive(Default)]
struct Store {
    version: u64,
    /// Events up to this one are forgotten.
    compacted: u64,
    objects: BTreeMap<(String, String), Value>,
    /// Version, resource, line.
    history: Vec<(u64, String, String)>,
    /// What lists out of the cache are answered from instead, when it lags behind.
    cache: Option<BTreeMap<(String, String), Value>>,
    watchers: Vec<Watcher>,
    faults: BTreeMap<(String, &'static str), Fault>,
    absent: BTreeSet<String>,
    asked: Vec<Asked>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Api {
    store: Arc<Mutex<Store>>,
    address: SocketAddr,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let api = Self {
            store: Arc::new(Mutex::new(Store {
                version: 100,
                ..Store::default()
            })),
            address: listener.local_addr().expect("bound"),
        };
        let app = Router::new().fallback(answer).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        api
    }

    pub(crate) fn client(&self) -> Client {
        let url = format!("http://{}", self.address);
        let mut config = Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no test thread has panicked")
    }

    /// Makes or changes an object; the watchers are told.
    pub(crate) fn put(&self, resource: &str, object: Value) {
        let mut store = self.store();
        let key = key(resource, &object);
        let known = store.objects.contains_key(&key);
        let object = store.stamp(object);
        store.objects.insert(key, object.clone());
        store.tell(resource, if known { "MODIFIED" } else { "ADDED" }, &object);
    }

    pub(crate) fn delete(&self, resource: &str, name: &str) {
        let mut store = self.store();
        let key = (resource.to_owned(), name.to_owned());
        let object = store.objects.remove(&key).expect("there is such an object");
        let object = store.stamp(object);
        store.tell(resource, "DELETED", &object);
    }

    /// Says that all up to now is known.
    pub(crate) fn bookmark(&self, resource: &str) {
        let mut store = self.store();
        let version = store.version.to_string();
        let object = json!({"kind": "Bookmark", "apiVersion": "v1",
            "metadata": {"resourceVersion": version}});
        store.send(resource, &line("BOOKMARK", &object));
    }

    pub(crate) fn fault(&self, resource: &str, verb: &'static str, fault: Fault) {
        let key = (resource.to_owned(), verb);
        self.store().faults.insert(key, fault);
    }

    pub(crate) fn lift(&self, resource: &str, verb: &'static str) {
        self.store().faults.remove(&(resource.to_owned(), verb));
    }

    /// Ends every watch of a resource.
    pub(crate) fn cut(&self, resource: &str) {
        let mut store = self.store();
        store
            .watchers
            .retain(|watcher| watcher.resource != resource);
    }

    /// Forgets the history: nobody can go on from a version before now.
    pub(crate) fn compact(&self) {
        let mut store = self.store();
        store.compacted = store.version;
        store.history.clear();
    }

    /// From now on lists out of the cache are as old as this moment.
    pub(crate) fn freeze_cache(&self) {
        let mut store = self.store();
        store.cache = Some(store.objects.clone());
    }

    /// The API has this resource, or not.
    pub(crate) fn serves(&self, resource: &str, served: bool) {
        let mut store = self.store();
        if served {
            store.absent.remove(resource);
        } else {
            store.absent.insert(resource.to_owned());
        }
    }

    pub(crate) fn version(&self) -> String {
        self.store().version.to_string()
    }

    /// Everything that was asked of a resource.
    pub(crate) fn asked(&self, resource: &str, verb: &str) -> Vec<Asked> {
        let store = self.store();
        let asked = store.asked.iter().filter(|a| a.of(resource, verb));
        asked.cloned().collect()
    }

    pub(crate) fn all_asked(&self) -> Vec<Asked> {
        self.store().asked.clone()
    }

    /// Watches that are under way.
    pub(crate) fn watched(&self, resource: &str) -> usize {
        let mut store = self.store();
        store.watchers.retain(|w| !w.lines.is_closed());
        let watchers = store.watchers.iter();
        watchers.filter(|w| w.resource == resource).count()
    }
}

impl Store {
    fn stamp(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object
    }

    fn tell(&mut self, resource: &str, kind: &str, object: &Value) {
        let text = line(kind, object);
        self.send(resource, &text);
        self.history.push((self.version, resource.to_owned(), text));
    }

    fn send(&mut self, resource: &str, text: &str) {
        let to = |w: &&Watcher| w.resource == resource;
        for watcher in self.watchers.iter().filter(to) {
            let _gone = watcher.lines.unbounded_send(Ok(text.to_owned().into()));
        }
    }

    fn list(&self, asked: &Asked, fault: Option<Fault>) -> Response {
        let cached = asked.get("resourceVersion") == "0";
        let objects = self.cache.as_ref().filter(|_| cached);
        let objects = objects.unwrap_or(&self.objects);
        let all: Vec<_> = objects
            .iter()
            .filter(|((resource, _), _)| *resource == asked.resource)
            .map(|(_, object)| object)
            .collect();
        let from: usize = asked.get("continue").parse().unwrap_or(0);
        if let (true, Some(Fault::SecondPage(code))) = (from > 0, fault) {
            return status(code);
        }
        let limit: usize = asked.get("limit").parse().unwrap_or(usize::MAX);
        let page: Vec<_> = all.iter().skip(from).take(limit).collect();
        let upto = from + page.len();
        let next = (upto < all.len()).then(|| upto.to_string());
        let list = json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": self.version.to_string(), "continue": next.unwrap_or_default()},
            "items": if page.is_empty() { Value::Null } else { json!(page) },
        });
        (
            [(header::CONTENT_TYPE, "application/json")],
            list.to_string(),
        )
            .into_response()
    }

    fn watch(&mut self, asked: &Asked, fault: Option<Fault>) -> Response {
        let (lines, stream) = unbounded();
        let send = |text: String| {
            let _open = lines.unbounded_send(Ok(text.into()));
        };
        let from: u64 = asked.get("resourceVersion").parse().expect("a version");
        if from < self.compacted {
            send(line("ERROR", &failure(410)));
        } else {
            for (version, resource, text) in &self.history {
                if *version > from && *resource == asked.resource {
                    send(text.clone());
                }
            }
            match fault {
                Some(Fault::InStream(code)) => send(line("ERROR", &failure(code))),
                Some(Fault::Cut) => {}
                _ => self.watchers.push(Watcher {
                    resource: asked.resource.clone(),
                    lines,
                }),
            }
        }
        Body::from_stream(stream).into_response()
    }
}

async fn answer(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok());
    let query: HashMap<_, _> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), decoded(value)))
        .collect();
    let asked = Asked {
        path: uri.path().to_owned(),
        resource: uri.path().rsplit('/').next().unwrap_or_default().to_owned(),
        verb: if query.contains_key("watch") {
            "watch"
        } else {
            "list"
        },
        query,
        accept: accept.unwrap_or_default().to_owned(),
    };
    let fault = {
        let mut store = api.store();
        store.asked.push(asked.clone());
        let key = (asked.resource.clone(), asked.verb);
        store.faults.get(&key).copied()
    };
    match fault {
        Some(Fault::Hangs) => {
            tokio::time::sleep(Duration::from_mins(10)).await;
            status(500)
        }
        Some(Fault::Status(code)) => status(code),
        _ if api.store().absent.contains(&asked.resource) => {
            (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
        }
        fault if asked.verb == "watch" => api.store().watch(&asked, fault),
        fault => api.store().list(&asked, fault),
    }
}

fn decoded(text: &str) -> String {
    text.replace("%21", "!")
        .replace("%2F", "/")
        .replace("%3D", "=")
}

fn key(resource: &str, object: &Value) -> (String, String) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    (resource.to_owned(), name.to_owned())
}

fn line(kind: &str, object: &Value) -> String {
    // Go writes the type first.
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "as told", "reason": ""})
}

fn status(code: u16) -> Response {
    let code = StatusCode::from_u16(code).expect("a status");
    let body = failure(code.as_u16()).to_string();
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
