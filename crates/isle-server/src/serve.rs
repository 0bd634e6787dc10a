//! From an engine and listeners to a running server, and down again.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use http::HeaderValue;
use isle_engine::{Code, Engine, Error, Result};
use isle_mcp::McpHandler;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::Doorway;
use crate::app::{App, Shared};
use crate::config::ServerConfig;
use crate::guard::Guard;
use crate::listen::Listeners;
use crate::routes;

/// Serves until `shutdown` fires (`POST /v1/shutdown` fires it too). Then no connection is taken,
/// event streams and MCP sessions end, and other requests get the configured time to finish; one-shots
/// and interactive commands get two fifths of it and are ended then. The engine is left as it is: shutting it down is the caller's.
pub async fn serve(
    engine: Engine,
    listeners: Listeners,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> Result<()> {
    let guard = match (&listeners.tcp, config.token) {
        (None, _) => None,
        (Some(_), None) => {
            return Err(Error::new(Code::ConfigInvalid, "TCP needs a token, and there is none")
                .next("give the server a token file"));
        }
        (Some(listener), Some(token)) => {
            let port = listener.local_addr().map_err(Error::internal)?.port();
            Some(Arc::new(Guard::new(
                Some(token),
                Some(engine.clone()),
                port,
                &config.allowed_hosts,
                &config.cors_origins,
            )))
        }
    };
    let version = HeaderValue::from_str(&config.version).map_err(Error::internal)?;
    let mcp = McpHandler::new(engine.clone(), config.mcp);
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
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
    };
    let doorway = Doorway {
        app,
        connections: tasks.clone(),
        max_connections: config.max_connections,
        closing: closing.clone(),
    };
    let on_unix = async {
        if let Some(listener) = &listeners.unix {
            doorway.clone().unix(listener).await;
        }
    };
    let on_tcp = async {
        if let (Some(listener), Some(guard)) = (&listeners.tcp, guard) {
            doorway.clone().tcp(listener, guard).await;
        }
    };
    let leave = async move {
        shutdown.cancelled().await;
        // In this order: an MCP request that ends because of the daemon must not kill its run.
        mcp.leave();
        closing.cancel();
    };
    tokio::join!(leave, on_unix, on_tcp);
    // New callers must find nobody here rather than wait for an answer that never comes.
    drop(listeners);
    let mut drained = std::pin::pin!(drain(&tasks, config.drain));
    tokio::select! {
        () = &mut drained => {}
        // Most commands need no longer. What goes on and cannot be left to itself ends now, while its
        // caller can still be told.
        () = tokio::time::sleep(config.drain * 2 / 5) => {
            engine.leave();
            drained.await;
        }
    }
    Ok(())
}

/// Serves a router of its own on loopback TCP, without a token: for test fixtures that must go
/// through the same listener, guard and connection handling as the product.
pub async fn serve_open(listener: TcpListener, router: Router, shutdown: CancellationToken) -> Result<()> {
    let address = listener.local_addr().map_err(Error::internal)?;
    if !address.ip().is_loopback() {
        return Err(Error::new(Code::ConfigInvalid, format!("{address} is not a loopback address"))
            .next("serve without a token on 127.0.0.1 only"));
    }
    let guard = Arc::new(Guard::new(None, None, address.port(), &[], &[]));
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    let app = App { router, log_http: false, engine: None, version };
    let doorway = Doorway { app, connections: TaskTracker::new(), max_connections: 1024, closing: shutdown };
    let connections = doorway.connections.clone();
    doorway.tcp(&listener, guard).await;
    drain(&connections, Duration::from_secs(1)).await;
    Ok(())
}

async fn drain(connections: &TaskTracker, within: Duration) {
    connections.close();
    if tokio::time::timeout(within, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "connections were still open after the drain time");
    }
}

/// A moment as RFC 3339 text in UTC.
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
