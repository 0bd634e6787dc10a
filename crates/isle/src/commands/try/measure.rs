//! Measures latencies on this host through the daemon's socket.

use std::time::{Duration, Instant};

use isle_api::session::{FirstMessage, OneShotSpec, StartRequest, StartTarget};
use isle_client::{Client, Result, SessionEvent, open_session};
use serde_json::json;

use super::stage::Stage;

const COUNT: usize = 20;

pub(super) async fn measure(
    client: &Client,
    stage: &mut Stage,
    sandbox: &str,
    allow_downgrade: bool,
) -> Result<()> {
    stage.put("\n  Latency on this host, measured through the daemon's socket:\n");
    let mut warm = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = Instant::now();
        client.call("exec", json!({ "sandbox": sandbox, "argv": ["/bin/true"] })).await?;
        warm.push(began.elapsed());
    }
    stage.timing("command in an existing sandbox", median(warm), COUNT);
    let mut fresh = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = Instant::now();
        one_shot(client, allow_downgrade).await?;
        fresh.push(began.elapsed());
    }
    stage.timing("new sandbox: create, run one command, remove", median(fresh), COUNT);
    stage.put("\n");
    Ok(())
}

async fn one_shot(client: &Client, allow_downgrade: bool) -> Result<()> {
    let one_shot = OneShotSpec { allow_downgrade: Some(allow_downgrade), ..OneShotSpec::default() };
    let mut request = StartRequest::in_target(StartTarget::OneShot(one_shot));
    request.argv = Some(vec!["/bin/true".into()]);
    let first = FirstMessage::Start(Box::new(request));
    let (_writer, mut reader) = open_session(&client.endpoint(), &first).await?;
    while !matches!(reader.next().await?, SessionEvent::Ended(_)) {}
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
