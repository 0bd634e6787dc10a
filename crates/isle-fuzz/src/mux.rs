//! The multiplexer on the host, fed by a hostile agent.

use std::time::Duration;

use isle_wire::{Mux, Side, read_frame};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

/// Far more than a few kilobytes take, however busy the machine.
const HANGS: Duration = Duration::from_secs(60);

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

pub(crate) fn run(runtime: &Runtime, bytes: &[u8]) {
    let local = tokio::task::LocalSet::new();
    let bytes = bytes.to_vec();
    local.block_on(runtime, async move {
        let (mut agent, host) = tokio::io::duplex(64 * 1024);
        let (mux, _incoming, driver) = Mux::new(host, Side::Host);
        let driver = tokio::task::spawn_local(driver);
        let session = async {
            let stream = mux.open().await;
            // The host may have gone before it has heard everything.
            let _ = agent.write_all(&bytes).await;
            drop(agent);
            if let Ok(mut stream) = stream {
                while let Ok(Some(_)) = read_frame(&mut stream).await {}
            }
        };
        tokio::time::timeout(HANGS, session).await.unwrap();
        drop(mux);
        tokio::time::timeout(HANGS, driver).await.unwrap().unwrap();
    });
}
