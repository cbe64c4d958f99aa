//! The page of metrics by HTTP/1.1: `GET /metrics`, and `GET /status` for the document of `stat`.
//!
//! Anyone who reaches the port may be slow or hostile. So few connections are open at a time, each makes one request, its
//! headers are short, and all of it has a time limit. A connection beyond the limit is closed unread.
//!
//! *Buffers.* hyper reads headers into at most 8 KiB. A page is made for each request, and dropped with its connection.
//!
//! *Errors.* A connection that fails ends alone, and is logged at the level `DEBUG`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::aside;
use crate::commands::serve::status::{Sources, metrics};

/// Most connections at a time.
const CONNECTIONS: usize = 16;
/// Time for the headers of a request.
const HEADERS: Duration = Duration::from_secs(5);
/// Time for a request and its answer.
const WHOLE: Duration = Duration::from_secs(15);
/// Memory for headers, in bytes.
const BUFFER: usize = 8 << 10;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves readers until the task is dropped.
pub(super) async fn serve(listener: TcpListener, sources: Sources) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // The connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "metrics: accept failed");
                sleep(PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        // A stream without a place is closed here.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let sources = sources.clone();
        connections.spawn(async move {
            let served = timeout(WHOLE, connection(stream, sources)).await;
            if !matches!(served, Ok(Ok(()))) {
                tracing::debug!(?served, "metrics: a connection failed");
            }
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, sources: Sources) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &sources);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer(method: &Method, path: &str, sources: &Sources) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/metrics" => {
            respond(StatusCode::OK, metrics::MEDIA_TYPE, aside(|| metrics::page(&sources.status())))
        }
        "/status" => match aside(|| serde_json::to_string(&sources.status())) {
            Ok(document) => respond(StatusCode::OK, "application/json", document),
            Err(error) => {
                tracing::warn!(%error, "metrics: no document");
                text(StatusCode::INTERNAL_SERVER_ERROR, "no document\n")
            }
        },
        "/" => text(StatusCode::OK, "rpcrdma serve: /metrics for Prometheus, /status for rpcrdma stat\n"),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics and /status\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
