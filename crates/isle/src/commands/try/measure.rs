//! How fast it is here, through the same socket every client uses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use isle_client::{AttachEvent, AttachRequest, AttachTarget, Client, OneShot, Result};
use isle_engine::engine::RunLimits;
use serde_json::json;

use super::stage::Stage;

const COUNT: usize = 20;

pub(super) async fn measure(
    client: &Client,
    stage: &mut Stage,
    sandbox: &str,
    allow_downgrade: bool,
) -> Result<()> {
    stage.put("\n  Measured on this machine, through the daemon's socket:\n");
    let mut warm = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = Instant::now();
        client.call("exec", json!({ "sandbox": sandbox, "argv": ["/bin/true"] })).await?;
        warm.push(began.elapsed());
    }
    stage.timing("a command in a sandbox that is there", median(warm), COUNT);
    let mut fresh = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = Instant::now();
        one_shot(client, allow_downgrade).await?;
        fresh.push(began.elapsed());
    }
    stage.timing("a fresh sandbox, one command in it, gone again", median(fresh), COUNT);
    stage.put("\n");
    Ok(())
}

async fn one_shot(client: &Client, allow_downgrade: bool) -> Result<()> {
    let request = AttachRequest {
        target: AttachTarget::OneShot(OneShot {
            allow_downgrade: Some(allow_downgrade),
            ..OneShot::default()
        }),
        command: None,
        argv: Some(vec!["/bin/true".into()]),
        code: None,
        cwd: None,
        env: BTreeMap::new(),
        user: None,
        timeout: None,
        limits: RunLimits::default(),
        allow_downgrade: false,
        profile: None,
        lock: false,
        allow: Vec::new(),
        secrets: Vec::new(),
        expose_secrets: Vec::new(),
        terminal: None,
        stdin: false,
    };
    let (_writer, mut reader) = request.open(client.endpoint()).await?;
    while !matches!(reader.next().await?, AttachEvent::Ended(_)) {}
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
