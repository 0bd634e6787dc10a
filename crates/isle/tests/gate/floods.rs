//! Too much of everything: connections that say nothing, servers that hear nothing, questions without
//! end. A sandbox that does this hurts itself at most; the daemon stays small and the others are served.

use serde_json::json;

use crate::harness::{Missing, TestDaemon, per_connection, require, until};
use crate::servers::{Server, allow, needs, python, reaching, start};

/// What the daemon's memory may grow by. The buffers of hundreds of connections, and what the allocator
/// keeps, are far below it; all that a flood could have sent is far above.
const GROWTH: u64 = 192 << 20;

/// A daemon, an echo, and sandboxes that may reach it.
struct Ground {
    daemon: TestDaemon,
    echo: Server,
    port: u16,
}

impl Ground {
    fn new(sandboxes: &[&str]) -> Result<Self, Missing> {
        let (daemon, echo) = (start(), Server::echo());
        needs(&daemon, "python3")?;
        let port = echo.port;
        sandboxes.iter().for_each(|sandbox| drop(allow(&daemon, sandbox, &reaching(port))));
        Ok(Self { daemon, echo, port })
    }
}

/// Starts a script that goes on; waits until it has made the file `ready`.
fn flood(daemon: &TestDaemon, sandbox: &str, script: &str) -> String {
    let run = daemon.exec(sandbox, json!({ "argv": ["python3", "-c", script], "wait": "0s" }));
    until("the flood has come", || daemon.shell(sandbox, "ls").contains("ready"));
    run["run_id"].as_str().unwrap().to_owned()
}

fn end(daemon: &TestDaemon, run: &str) {
    daemon.post(&format!("/v1/runs/{run}/kill"), json!({ "force": true }));
    daemon.post(&format!("/v1/runs/{run}/wait"), json!({}));
}

/// Sends something to an echo and hears it back.
fn echoed(daemon: &TestDaemon, sandbox: &str, port: u16) -> bool {
    let script = format!(
        "import socket, json\n\
         stream = socket.create_connection(('web.test', {port}), 60); stream.sendall(b'hello')\n\
         print(json.dumps(stream.recv(64) == b'hello'))"
    );
    python(daemon, sandbox, &script, &[]) == true
}

per_connection!(connections_that_say_nothing_hold_up_neither_their_sandbox_nor_another);

fn connections_that_say_nothing_hold_up_neither_their_sandbox_nor_another() {
    let Ground { daemon, echo, port } = require!(Ground::new(&["wild", "calm"]));
    allow(&daemon, "wild", &[format!("other.test:{port}/tls")]);
    let before = daemon.memory("VmRSS");
    // Some go out at once, others wait for the words that a TLS grant is held to.
    let script = format!(
        "import socket, time\n\
         held = [socket.create_connection((name, {port}), 60) for number in range(300) for name in ('web.test', 'other.test')]\n\
         open('ready', 'w'); time.sleep(600)"
    );
    let run = flood(&daemon, "wild", &script);
    until("all that may go out are out", || echo.heard().len() == 300);
    // The sandbox itself is still at its owner's command, and its own network goes on.
    assert_eq!(daemon.shell("wild", "echo here"), "here\n");
    assert!(echoed(&daemon, "wild", port));
    assert!(echoed(&daemon, "calm", port));
    let grown = daemon.memory("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
    end(&daemon, &run);
    until("they are gone", || {
        let grants = daemon.get("/v1/sandboxes/wild/grants");
        grants["grants"].as_array().unwrap().iter().all(|grant| grant["open"] == 0)
    });
}

per_connection!(no_more_connections_than_a_sandbox_may_have_are_opened);

fn no_more_connections_than_a_sandbox_may_have_are_opened() {
    let Ground { daemon, echo, port } = require!(Ground::new(&["wild", "calm"]));
    let script = format!(
        "import socket, time, resource\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
         held = []\n\
         for number in range(1500):\n\
         \u{20} try: held.append(socket.create_connection(('web.test', {port}), 60))\n\
         \u{20} except OSError: pass\n\
         open('ready', 'w'); time.sleep(600)"
    );
    let run = flood(&daemon, "wild", &script);
    until("those above the limit were refused", || {
        daemon.get("/v1/sandboxes/wild/net")["denied"].as_u64().unwrap() >= 1500 - 1024
    });
    assert_eq!(echo.heard().len(), 1024);
    assert!(daemon.get("/v1/sandboxes/wild/net").to_string().contains("too_many_connections"));
    assert_eq!(daemon.shell("wild", "echo here"), "here\n");
    assert!(echoed(&daemon, "calm", port));
    end(&daemon, &run);
    until("there is room again", || echoed(&daemon, "wild", port));
}

per_connection!(a_server_that_does_not_read_holds_its_senders_back_and_the_daemon_stays_small);

fn a_server_that_does_not_read_holds_its_senders_back_and_the_daemon_stays_small() {
    let Ground { daemon, port, .. } = require!(Ground::new(&["calm"]));
    let silent = Server::deaf().port;
    allow(&daemon, "wild", &reaching(silent));
    let before = daemon.memory("VmRSS");
    let script = format!(
        "import socket, time\n\
         held = [socket.create_connection(('web.test', {silent}), 60) for number in range(64)]\n\
         sent, rest, piece = 0, 0, bytes(1 << 20)\n\
         for stream in held: stream.setblocking(False)\n\
         while rest < 20:\n\
         \u{20} moved = 0\n\
         \u{20} for stream in held:\n\
         \u{20}\u{20} try: moved += stream.send(piece)\n\
         \u{20}\u{20} except BlockingIOError: pass\n\
         \u{20} rest = 0 if moved else rest + 1\n\
         \u{20} time.sleep(0.02)\n\
         open('ready', 'w'); time.sleep(600)"
    );
    let run = flood(&daemon, "wild", &script);
    let grown = daemon.memory("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
    assert!(echoed(&daemon, "calm", port));
    // What was granted can be taken back all the same.
    daemon.succeeds(&["revoke", "wild", &format!("web.test:{silent}")]);
    until("they are cut", || daemon.get("/v1/sandboxes/wild/net")["denied"].as_u64().unwrap() >= 64);
    end(&daemon, &run);
}

per_connection!(questions_without_end_and_without_sense_are_answered_or_dropped_and_cost_nobody_else);

fn questions_without_end_and_without_sense_are_answered_or_dropped_and_cost_nobody_else() {
    let Ground { daemon, echo, port } = require!(Ground::new(&["wild", "calm"]));
    let before = daemon.memory("VmRSS");
    let script = "import os, random, socket\n\
         asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asking.setblocking(False)\n\
         dice = random.Random(7)\n\
         for number in range(30000):\n\
         \u{20} name = b'data%d' % number\n\
         \u{20} question = b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([len(name)]) + name + b'\\4evil\\7example\\0\\0\\1\\0\\1'\n\
         \u{20} if number % 3 == 1: question = dice.randbytes(dice.randrange(1200))\n\
         \u{20} if number % 3 == 2: question = bytearray(question); question[dice.randrange(len(question))] ^= 1 << dice.randrange(8)\n\
         \u{20} try: asking.sendto(bytes(question), ('127.0.0.53', 53))\n\
         \u{20} except BlockingIOError: pass\n\
         \u{20} if number == 10000: open('ready', 'w')\n\
         open('over', 'w')";
    flood(&daemon, "wild", script);
    assert!(echoed(&daemon, "calm", port));
    until("all were asked", || daemon.shell("wild", "ls").contains("over"));
    let grown = daemon.memory("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
    assert!(echoed(&daemon, "wild", port), "the name server of the sandbox lives");
    let net = daemon.get("/v1/sandboxes/wild/net");
    assert!(net["denied"].as_u64().unwrap() > 100, "{net}");
    let events = daemon.get("/v1/events/history?kind=network_denied&limit=1000");
    assert!(events["events"].as_array().unwrap().len() <= 256, "more is told than anybody reads");
    assert_eq!(echo.heard().len(), 2);
}

per_connection!(a_thousand_connections_of_many_sandboxes_are_carried_without_an_error);

fn a_thousand_connections_of_many_sandboxes_are_carried_without_an_error() {
    let Ground { daemon, echo, port } = require!(Ground::new(&[]));
    let names: Vec<String> = (0..10).map(|number| format!("box-{number}")).collect();
    let script = format!(
        "import socket, json\n\
         held = [socket.create_connection(('web.test', {port}), 60) for number in range(100)]\n\
         well = 0\n\
         for turn in range(2):\n\
         \u{20} for number, stream in enumerate(held): stream.sendall(b'%08d' % number * 500)\n\
         \u{20} for number, stream in enumerate(held):\n\
         \u{20}\u{20} heard = b''\n\
         \u{20}\u{20} while len(heard) < 4000: heard += stream.recv(4000 - len(heard))\n\
         \u{20}\u{20} well += heard == b'%08d' % number * 500\n\
         print(json.dumps(well))"
    );
    std::thread::scope(|scope| {
        let working: Vec<_> = names
            .iter()
            .map(|name| {
                let (daemon, script) = (&daemon, &script);
                scope.spawn(move || {
                    allow(daemon, name, &reaching(port));
                    python(daemon, name, script, &[])
                })
            })
            .collect();
        for worker in working {
            assert_eq!(worker.join().unwrap(), 200);
        }
    });
    assert_eq!(echo.heard().len(), 1000);
    for name in &names {
        let net = daemon.get(&format!("/v1/sandboxes/{name}/net"));
        assert_eq!((&net["failed"], &net["denied"]), (&json!(0), &json!(0)), "{net}");
    }
}
