//! The live page: what [`crate::live`] knows, over HTTP, for whoever is shown the address.
//!
//! It reads only: there is no request that changes anything. `access` says who may look, `wire` bounds connections and
//! gives up those that stand still, `events` streams what changes, `metrics` says it in Prometheus' text format, and
//! `assets` is the page, which loads nothing from elsewhere.
//!
//! Must never: show a secret, slow the run (it reads the hub and nothing else), or keep anything for a viewer who does not
//! read. [docs/live.md](../../../docs/live.md) describes it.

mod access;
mod assets;
mod events;
mod metrics;
#[cfg(test)]
mod tests;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::{Router, serve};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::live::{Hub, Known};
use access::Access;
use events::Pace;
use wire::Bounded;

/// Viewers at the same time: each costs some kilobytes a second.
pub const MAX_VIEWERS: usize = 16;
/// Connections at the same time, pages that load among them. More wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 64;

/// The page's socket, open, and who may look.
pub struct Web {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
}

/// What the handlers use.
struct Site {
    hub: Hub,
    access: Access,
    viewers: Arc<Semaphore>,
    /// Tells this process from another that had the same address: numbers of points are its own.
    process: u64,
    pace: Pace,
}

impl Web {
    /// Opens the socket.
    ///
    /// # Errors
    /// A message that names the option and says why.
    pub async fn open(listen: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(listen).await.map_err(|e| match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                anyhow::anyhow!("--web {listen}: the port is in use; choose another, or 0 for a free one")
            }
            _ => anyhow::anyhow!("--web {listen}: {e}; write HOST:PORT, such as 127.0.0.1:7001"),
        })?;
        let address = listener.local_addr().with_context(|| format!("--web {listen}"))?;
        Ok(Self { listener, address, access: Access::to(address.ip())? })
    }

    /// What a browser is given; with the token, where one is needed.
    #[must_use]
    pub fn url(&self) -> String {
        self.access.url(self.address)
    }

    /// Serves until it is dropped.
    pub async fn serve(self, hub: Hub) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let listener = Bounded::new(self.listener, places);
        let app = app(hub, self.access);
        if let Err(e) = serve(listener, app).await {
            tracing::warn!("the live page is served no more: {e}");
        }
    }
}

fn app(hub: Hub, access: Access) -> Router {
    // Without randomness a viewer that comes back to another process may see a gap: no more than that.
    let process = getrandom::u64().unwrap_or_default();
    let site =
        Site { hub, access, viewers: Arc::new(Semaphore::new(MAX_VIEWERS)), process, pace: Pace::default() };
    Router::new().fallback(answer).with_state(Arc::new(site))
}

/// The one handler: who asks is checked before what is asked for.
async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response<Body> {
    let mut response = match site.access.path(&request) {
        Ok(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "this page is read only")
        }
        Ok(path) => site.page(path, &request),
        Err(refusal) => refuse(refusal.status(), refusal.text()),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// On every answer. Nothing is loaded from elsewhere, run from the page's own text, framed, or told where it came from:
/// the token is in the address.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

impl Site {
    fn page(self: &Arc<Self>, path: &str, request: &Request) -> Response<Body> {
        match path {
            "/events" => self.events(request),
            "/snapshot" => {
                let news = self.hub.news(Known::default());
                match serde_json::to_string(&events::Body::of(&news)) {
                    Ok(json) => text("application/json", json),
                    Err(e) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()),
                }
            }
            "/metrics" => text("text/plain; version=0.0.4; charset=utf-8", self.hub.read(metrics::render)),
            _ => match assets::find(path) {
                Some((kind, content)) => text(kind, content),
                None => refuse(StatusCode::NOT_FOUND, "there is no such page"),
            },
        }
    }

    fn events(self: &Arc<Self>, request: &Request) -> Response<Body> {
        let Ok(place) = Arc::clone(&self.viewers).try_acquire_owned() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "as many look on as may; close another page");
        };
        let known = events::resumes(request, self.process);
        let body = match *request.method() {
            Method::HEAD => Body::empty(),
            _ => events::stream(self.hub.clone(), known, (self.process, self.pace), place),
        };
        text("text/event-stream", body)
    }
}

fn text(kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = text("text/plain; charset=utf-8", format!("{why}\n"));
    *response.status_mut() = status;
    response
}
