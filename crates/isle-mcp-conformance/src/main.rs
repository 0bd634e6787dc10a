//! A server with the fixtures the official conformance suite asks for, beside the product's own
//! tools. It goes through the same transport function, listener and guard as the product, so that
//! what the suite says about it holds for the product too. Usage: `mcp-conformance [PORT]`.

mod asking;
mod catalog;
mod content;
mod handler;
mod input_required;
mod prompts;
mod resources;

use std::error::Error;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::handler::Fixtures;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).as_deref().unwrap_or("0").parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    // The script that starts the suite waits for this line.
    println!("http://{}/mcp", listener.local_addr()?);
    let shutdown = CancellationToken::new();
    let router = Router::new().route("/mcp", isle_server::mcp_routes(Fixtures::new()?, shutdown.clone()));
    let ended = shutdown.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            ended.cancel();
        }
    });
    isle_server::serve_open(listener, router, shutdown).await?;
    Ok(())
}
