//! A connection that is denied and then allowed, to a server in this process: the demo needs no Internet access
//! and sends nothing to other machines.

use std::net::Ipv4Addr;

use isle_client::{Client, Result};
use isle_core::Code;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::SANDBOX;
use super::bash;
use super::stage::{Stage, Step};

/// Names below `localhost` resolve to the loopback address of the daemon's host.
const NAME: &str = "hello.localhost";

pub(super) async fn show(client: &Client, stage: &mut Stage) -> Result<()> {
    // Skipped on a host that cannot listen on loopback.
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await else { return Ok(()) };
    let Ok(address) = listener.local_addr() else { return Ok(()) };
    let port = address.port();
    let server = tokio::spawn(serve(listener));
    let shown = walk(client, stage, port).await;
    server.abort();
    shown
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        // The client may close the connection early.
        stream.write_all(b"hello from a server on the host\n").await.ok();
    }
}

async fn walk(client: &Client, stage: &mut Stage, port: u16) -> Result<()> {
    let connect = format!("cat < /dev/tcp/{NAME}/{port}");
    bash(client, stage, "Connect to a server started on the host by this command", &connect).await?;
    let hosts = [format!("{NAME}:{port}"), format!("127.0.0.1:{port}")];
    let shown = format!("isle allow {SANDBOX} {}", hosts.join(" "));
    let mut step = Step::begin("Allow the name, and the address, since it is not public", &shown);
    match client.call("allow", json!({ "sandbox": SANDBOX, "hosts": hosts })).await {
        Ok(_) => step.line("allowed for this sandbox only, effective immediately"),
        // The process tier has no network grants.
        Err(error) if error.is(Code::BackendUnavailable) => step.line(&error.message),
        Err(error) => return Err(error),
    }
    step.done();
    stage.show(&step);
    bash(client, stage, "Connect again", &connect).await
}
