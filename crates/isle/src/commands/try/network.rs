//! A connection that is denied and then granted, to a server of this program's own: nothing outside of this
//! machine is needed, and nothing outside of it hears of it.

use std::net::Ipv4Addr;

use isle_client::{Client, Result};
use isle_engine::Code;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::SANDBOX;
use super::bash;
use super::stage::{Stage, Step};

/// Names below `localhost` lead to the machine they are resolved on, which is the daemon's.
const NAME: &str = "hello.localhost";

pub(super) async fn show(client: &Client, stage: &mut Stage) -> Result<()> {
    // A host that cannot even listen on its loopback shows nothing here.
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
        // Whoever leaves early hears less.
        stream.write_all(b"hello from a server on the host\n").await.ok();
    }
}

async fn walk(client: &Client, stage: &mut Stage, port: u16) -> Result<()> {
    let connect = format!("cat < /dev/tcp/{NAME}/{port}");
    bash(client, stage, "Connect to a server that this command started on the host", &connect).await?;
    let hosts = [format!("{NAME}:{port}"), format!("127.0.0.1:{port}")];
    let shown = format!("isle allow {SANDBOX} {}", hosts.join(" "));
    let mut step = Step::begin("Grant it: the name, and the address, since it is not a public one", &shown);
    match client.call("allow", json!({ "sandbox": SANDBOX, "hosts": hosts })).await {
        Ok(_) => step.line("granted, at once, to this sandbox only"),
        // Sandboxes of tier `process` are granted nothing.
        Err(error) if error.is(Code::BackendUnavailable) => step.line(&error.message),
        Err(error) => return Err(error),
    }
    step.done();
    stage.show(&step);
    bash(client, stage, "Once more", &connect).await
}
