//! The HTTP shell: routes, and the small endpoints around generation.
//!
//! Owns the state that requests share and the life of the server: it takes its listener and its stop signal, so a
//! test binds port 0 and ends it. Must never hold a model decision: timing is [`crate::engine`]'s, answers are
//! [`crate::answer`]'s.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::clock::{Clock, unix_now};
use crate::config::Config;
use crate::driver::Driver;
use crate::generate::generate;
use crate::listen::{Connection, Port};
use crate::log::Log;
use crate::metrics::Finished;
use crate::openai::{Api, ApiError};
use crate::tls::Tls;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) driver: Driver,
    pub(crate) log: Arc<Log>,
    pub(crate) finished: Arc<Finished>,
    started_unix: u64,
    requests: AtomicU64,
}

impl App {
    /// Counts generation requests, from 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Serves until `shutdown` completes; open streams are then cut, as by an engine that is stopped.
///
/// # Errors
/// When the engine's thread cannot be started.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_tls(listener, None, config, shutdown).await
}

/// The same, inside TLS if so.
///
/// # Errors
/// When the engine's thread cannot be started.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Option<Tls>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let clock = Clock::start();
    let app = App {
        driver: Driver::start(config.timing, clock)?,
        log: Arc::new(Log::new(config.log_limit, clock)),
        finished: Arc::default(),
        started_unix: unix_now().as_secs(),
        requests: AtomicU64::new(0),
        clock,
        config,
    };
    let router = Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/health", get(StatusCode::OK))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .route("/log", get(log).delete(clear_log))
        .fallback(async || (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))))
        .method_not_allowed_fallback(async || {
            (StatusCode::METHOD_NOT_ALLOWED, Json(json!({"detail": "Method Not Allowed"})))
        })
        .with_state(Arc::new(app));
    let service = router.into_make_service_with_connect_info::<Connection>();
    tokio::select! {
        served = axum::serve(Port::new(listener, tls), service).into_future() => served,
        () = shutdown => Ok(()),
    }
}

type Shared = State<Arc<App>>;

async fn completions(State(app): Shared, from: ConnectInfo<Connection>, request: Request) -> Response {
    generate(app, Api::Completions, from.0, request).await
}

async fn chat(State(app): Shared, from: ConnectInfo<Connection>, request: Request) -> Response {
    generate(app, Api::Chat, from.0, request).await
}

async fn models(State(app): Shared) -> Json<Value> {
    let model = &app.config.model;
    Json(json!({"object": "list", "data": [{
        "id": model,
        "object": "model",
        "created": app.started_unix,
        "owned_by": "sim-engine",
        "root": model,
        "parent": null,
        "max_model_len": app.config.max_model_len,
    }]}))
}

async fn version() -> Json<Value> {
    Json(json!({"version": concat!("sim-engine ", env!("CARGO_PKG_VERSION"))}))
}

async fn metrics(State(app): Shared) -> impl IntoResponse {
    let (stats, latencies) = app.driver.observe();
    let text = app.finished.print(stats, &latencies, &app.config.model);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn log(State(app): Shared) -> Response {
    match app.log.print() {
        Ok((array, dropped)) => {
            let headers = [
                (header::CONTENT_TYPE, "application/json".to_owned()),
                (header::HeaderName::from_static("x-sim-log-dropped"), dropped.to_string()),
            ];
            (headers, array).into_response()
        }
        Err(error) => {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", error.to_string())
                .into_response()
        }
    }
}

async fn clear_log(State(app): Shared) -> StatusCode {
    app.log.clear();
    StatusCode::NO_CONTENT
}
