//! Runs the server with an engine and listeners until shutdown.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use http::HeaderValue;
use isle_core::{Code, Error, Result};
use isle_engine::Engine;
use isle_mcp::McpHandler;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{Acceptor, Service};
use crate::access::AccessControl;
use crate::app::{App, Served, Shared};
use crate::config::ServerConfig;
use crate::listen::Listeners;
use crate::ports::LazyListener;
use crate::routes;

/// Serves until `shutdown` is cancelled (`POST /v1/shutdown` does that too). Then no connection is accepted,
/// event streams and MCP sessions end, and other requests have the configured time to finish; one-shots and
/// interactive commands have two fifths of it and are killed then. The caller shuts the engine down.
pub async fn serve(
    engine: Engine,
    listeners: Listeners,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> Result<()> {
    let Listeners { mut unix, tcp } = listeners;
    let access = match (&tcp, config.token.clone()) {
        (None, _) => None,
        (Some(_), None) => {
            return Err(Error::new(Code::ConfigInvalid, "listening on TCP requires a token")
                .next("configure a token file"));
        }
        (Some(listener), Some(token)) => {
            let port = listener.local_addr().map_err(Error::internal)?.port();
            Some(Arc::new(AccessControl::new(
                Some(token),
                Some(engine.clone()),
                port,
                &config.allowed_hosts,
                &config.cors_origins,
            )))
        }
    };
    let version = HeaderValue::from_str(&config.version).map_err(Error::internal)?;
    let instance =
        config.instance.as_deref().map(HeaderValue::from_str).transpose().map_err(Error::internal)?;
    let mcp = McpHandler::new(engine.clone(), config.mcp.clone());
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
    let ports = config
        .ports
        .clone()
        .map(|ports| Arc::new(LazyListener::new(&engine, ports, &config, &tasks, &closing)));
    if let Some(ports) = &ports {
        let listener = Arc::downgrade(ports);
        engine.serve_ports_by(listener);
    }
    let shared = Arc::new(Shared {
        engine: engine.clone(),
        last_words: config.drain * 4 / 5,
        openapi: OnceLock::new(),
        mcp: mcp.clone(),
        version: config.version,
        state_dir: config.state_dir,
        started_at: timestamp(SystemTime::now()),
        tasks: tasks.clone(),
        stop: shutdown.clone(),
        closing: closing.clone(),
    });
    let app = App {
        router: routes::router(&shared),
        log_http: config.log_http,
        engine: Some(engine.clone()),
        version,
        instance: instance.map(|id| Served { id, state_dir: shared.state_dir.clone() }),
    };
    let acceptor = Acceptor {
        service: Service::Api(app),
        connections: tasks.clone(),
        max_connections: config.max_connections,
        closing: closing.clone(),
    };
    let on_unix = async {
        while let Some(socket) = &unix {
            tokio::select! {
                () = acceptor.clone().unix(&socket.listener) => break,
                again = socket.rebind() => unix = Some(again),
            }
        }
    };
    let on_tcp = async {
        if let (Some(listener), Some(access)) = (&tcp, access) {
            acceptor.clone().tcp(listener, Some(access)).await;
        }
    };
    let begin_shutdown = async move {
        shutdown.cancelled().await;
        // In this order: an MCP request cancelled by the shutdown must not kill its run.
        mcp.begin_shutdown();
        closing.cancel();
    };
    tokio::join!(begin_shutdown, on_unix, on_tcp);
    // New clients must get a connection error instead of waiting for a response.
    drop((unix, tcp));
    let mut drained = std::pin::pin!(drain(&tasks, config.drain));
    tokio::select! {
        () = &mut drained => {}
        // Most commands have exited by now. Kill the remaining attached ones while their result can still be
        // sent.
        () = tokio::time::sleep(config.drain * 2 / 5) => {
            engine.leave();
            drained.await;
        }
    }
    Ok(())
}

/// Serves another router on loopback TCP, without a token: for test fixtures that use the same listener,
/// access control and connection handling as the daemon.
pub async fn serve_open(listener: TcpListener, router: Router, shutdown: CancellationToken) -> Result<()> {
    let address = listener.local_addr().map_err(Error::internal)?;
    if !address.ip().is_loopback() {
        return Err(Error::new(Code::ConfigInvalid, format!("{address} is not a loopback address"))
            .next("use 127.0.0.1: without a token only loopback is allowed"));
    }
    let access = Arc::new(AccessControl::new(None, None, address.port(), &[], &[]));
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    let app = App { router, log_http: false, engine: None, version, instance: None };
    let service = Service::Api(app);
    let acceptor =
        Acceptor { service, connections: TaskTracker::new(), max_connections: 1024, closing: shutdown };
    let connections = acceptor.connections.clone();
    acceptor.tcp(&listener, Some(access)).await;
    drain(&connections, Duration::from_secs(1)).await;
    Ok(())
}

async fn drain(connections: &TaskTracker, within: Duration) {
    connections.close();
    if tokio::time::timeout(within, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "connections still open after the drain timeout");
    }
}

/// A time as RFC 3339 text in UTC.
fn timestamp(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_893_456_000, "2030-01-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
