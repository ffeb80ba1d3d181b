//! The agent's HTTP side: `/healthz`, `/readyz`, `/metrics`, `/state`.
//!
//! Answers come from the last snapshot, never from the loop itself, so that neither a slow
//! scraper nor a busy loop waits for the other. It serves no secrets and changes nothing;
//! still it listens on the loopback address unless told otherwise.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::metrics::{CONTENT_TYPE, Metrics};
use super::state::StateSnapshot;

/// Whether the loop still turns; `Err` says what it hangs on. It must depend on nothing
/// outside this process: an API outage is no reason to restart an agent.
pub type Alive = dyn Fn() -> Result<(), String> + Send + Sync;

/// What the answers are made of.
#[derive(Clone)]
pub struct HttpState {
    /// The loop's last snapshot.
    pub snapshot: watch::Receiver<Arc<StateSnapshot>>,
    /// All series.
    pub metrics: Arc<Metrics>,
    /// For `/healthz`.
    pub alive: Arc<Alive>,
}

/// Serves until `stop` resolves.
pub async fn serve(
    listener: TcpListener,
    state: HttpState,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(state))
        .with_graceful_shutdown(stop)
        .await
}

fn router(state: HttpState) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/state", get(snapshot))
        .with_state(state)
}

async fn healthz(State(state): State<HttpState>) -> Response {
    match (state.alive)() {
        Ok(()) => "ok\n".into_response(),
        Err(stuck) => (StatusCode::SERVICE_UNAVAILABLE, format!("{stuck}\n")).into_response(),
    }
}

async fn readyz(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    let snapshot = state.snapshot.borrow().clone();
    let readiness = &snapshot.readiness;
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if wants_json(&headers) {
        return (status, json(readiness)).into_response();
    }
    (status, readiness.to_string()).into_response()
}

async fn metrics(State(state): State<HttpState>) -> Response {
    let snapshot = state.snapshot.borrow().clone();
    state.metrics.update(&snapshot);
    match state.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn snapshot(State(state): State<HttpState>) -> Response {
    let snapshot = state.snapshot.borrow().clone();
    json(&*snapshot)
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use lb_common::abi::Counter;

    use super::super::client::fetch_state;
    use super::super::counters::{CounterError, CounterSource};
    use super::super::health::{NotReady, Readiness};
    use super::*;

    #[derive(Debug)]
    struct NoCounters;

    impl CounterSource for NoCounters {
        fn read(&self) -> Result<Vec<Counter>, CounterError> {
            Ok(Vec::new())
        }
    }

    fn with_agent(test: impl FnOnce(std::net::SocketAddr, watch::Sender<Arc<StateSnapshot>>)) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("runtime");
        let (sender, snapshot) = watch::channel(Arc::default());
        let state = HttpState {
            snapshot,
            metrics: Arc::new(Metrics::new("test", Arc::new(NoCounters))),
            alive: Arc::new(|| Ok(())),
        };
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("port");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(serve(listener, state, std::future::pending()));
        test(address, sender);
    }

    fn get(address: std::net::SocketAddr, path: &str, accept: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(address).expect("listening");
        write!(stream, "GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answer");
        text
    }

    #[test]
    fn an_agent_says_what_it_waits_for_and_then_that_it_is_ready() {
        with_agent(|address, sender| {
            assert!(get(address, "/healthz", "*/*").starts_with("HTTP/1.0 200"));
            let text = get(address, "/readyz", "*/*");
            assert!(
                text.starts_with("HTTP/1.0 503") && text.ends_with("- starting\n"),
                "{text}"
            );
            let missing = NotReady::NotListed {
                kind: "Service".into(),
            };
            let readiness = Readiness::of([missing]);
            sender.send_replace(Arc::new(StateSnapshot {
                readiness,
                ..Default::default()
            }));
            let text = get(address, "/readyz", "application/json");
            assert!(
                text.ends_with(r#"[{"reason":"not_listed","kind":"Service"}]}"#),
                "{text}"
            );
            let readiness = Readiness::of([]);
            let node = "n1".to_owned();
            sender.send_replace(Arc::new(StateSnapshot {
                node,
                readiness,
                ..Default::default()
            }));
            assert!(get(address, "/readyz", "*/*").starts_with("HTTP/1.0 200"));
            assert!(get(address, "/metrics", "*/*").contains("\nsluice_ready 1\n"));
            assert_eq!(fetch_state(address).expect("snapshot").node, "n1");
        });
    }

    #[test]
    fn a_silent_address_is_named() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
        let address = nobody.local_addr().expect("bound");
        drop(nobody);
        let error = fetch_state(address).expect_err("closed");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
