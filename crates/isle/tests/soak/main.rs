//! The soak: many clients, some of them tenants, do everything at random while a nemesis kills the daemon, pauses it and
//! fills its disk; each client compares every answer with a model of its own sandboxes. A seed gives
//! the same operations every time: `make soak SEED=… MINUTES=…`.

// Its full disks are failpoints.
#![cfg(debug_assertions)]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod client;
mod model;
mod nemesis;
mod plan;

use isle_e2e as harness;
use isle_e2e::failpoints as ground;

use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::Client;
use ground::Ground;
use harness::Receiver;
use plan::{Deed, Operation, deed, operation};

/// What CI runs.
const SHORT: Duration = Duration::from_secs(20);
const SEED: u64 = 20_260;
const CLIENTS: u64 = 6;

fn number(name: &str) -> Option<f64> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

#[test]
fn a_random_mix_of_everything_with_a_nemesis_agrees_with_the_model() {
    let seed: u64 = std::env::var("ISLE_SOAK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED);
    let minutes = number("ISLE_SOAK_MINUTES");
    let time = minutes.map_or(SHORT, |minutes| Duration::from_secs_f64(minutes * 60.0));
    println!("replay with: make soak SEED={seed} MINUTES={:.2}", time.as_secs_f64() / 60.0);
    let policy =
        r#""*@c*" = { inject_ctl = false, max_total = 1000000, max_concurrent = 8, child_ttl = "20s" }"#;
    let mut ground = Ground::with(&[("ISLE_POOL_SIZE", "1"), ("ISLE_SPAWN_POLICIES", policy)]);
    let socket = ground.daemon.socket();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|number| Client::new(seed, number, &socket)).collect();
    for namespace in clients.iter().filter_map(Client::namespace) {
        ground.daemon.post("/v1/tokens", json!({"namespace": namespace}));
    }
    let receiver = Receiver::start();
    ground.daemon.post("/v1/webhooks", json!({"url": receiver.url(), "all": true}));
    let (stop, broken) = (AtomicBool::new(false), AtomicBool::new(false));
    let until = Instant::now() + time;
    let deeds = std::thread::scope(|scope| {
        for client in &mut clients {
            let receiver = Receiver::start();
            ground.daemon.post("/v1/webhooks", json!({"url": receiver.url(), "all": true}));
            let (stop, broken) = (&stop, &broken);
            scope.spawn(move || {
                let alarm = Alarm(broken);
                client.work(stop);
                std::mem::forget(alarm);
            });
        }
        let deeds = nemesis::haunt(&mut ground, seed, until, &broken);
        stop.store(true, Ordering::Release);
        deeds
    });
    assert!(!broken.load(Ordering::Acquire), "a client disagreed with its model");
    // With nothing kept ready, everything there is belongs to somebody.
    ground.daemon.kill();
    ground.daemon.try_launch_with(&[("ISLE_POOL_SIZE", "0")]).unwrap();
    let done: u64 = clients.iter().map(Client::done).sum();
    let acknowledged: u64 = clients.iter().map(Client::acknowledged).sum();
    println!("{done} operations, {acknowledged} acknowledged, {deeds} deeds of the nemesis");
    assert!(acknowledged * 4 > done, "too little was served to prove anything");
    check_delivered(&ground, &receiver);
    let names: Vec<String> = clients.iter().flat_map(Client::names).collect();
    for client in &mut clients {
        client.check_all();
        client.leave();
    }
    // A start whose answer was lost may have begun: then it goes on, and only the history knows.
    let open = ground.daemon.get("/v1/runs?state=running");
    for run in open["runs"].as_array().unwrap().iter().filter(|run| run["command"] == "sleep 600") {
        let kill = format!("POST /v1/runs/{}/kill", run["run_id"].as_str().unwrap());
        ground.ask(&kill, Some(&json!({"force": true})));
    }
    ground.check(&names.iter().map(String::as_str).collect::<Vec<_>>());
    ground.clear();
}

/// Every event has arrived, or was told as lost; some maybe twice.
fn check_delivered(ground: &Ground, receiver: &Receiver) {
    ground.daemon.exec("beacon", json!({"command": "exit 77"}));
    receiver.until_taken("the last event arrives", |event| event["data"]["exit_code"] == 77);
    let parcels: Vec<_> = receiver.received().into_iter().filter(|one| one.status == 200).collect();
    let lost: u64 = parcels.iter().map(|one| one.json()["lost"].as_u64().unwrap()).sum();
    let ids: BTreeSet<u64> =
        parcels.iter().flat_map(|one| one.events()).map(|event| event["id"].as_u64().unwrap()).collect();
    let (first, last) = (ids.first().unwrap(), ids.last().unwrap());
    let arrived = ids.len() as u64;
    println!("{arrived} events were delivered in {} requests, {lost} told as lost", parcels.len());
    assert!(arrived + lost > last - first, "from {first} to {last}: {arrived} arrived, {lost} told as lost");
}

/// Says so when a client panics, so that the others need not go on.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_seed_gives_the_same_operations_every_time() {
    let of = |seed: u64| -> Vec<(Operation, Deed)> {
        (0..500).map(|index| (operation(seed, index % CLIENTS, index), deed(seed, index))).collect()
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    let seen = AtomicU64::new(0);
    for (operation, _) in of(7) {
        seen.fetch_or(1 << operation.kind(), Ordering::Relaxed);
    }
    assert_eq!(seen.into_inner(), (1 << Operation::KINDS) - 1, "every kind of operation is among them");
}
