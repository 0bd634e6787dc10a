//! Addresses that are connected to without a name, and ports of a name that are not granted. There is no
//! route to any address, so nothing can leave by itself: what is granted is reached through the gate like any
//! name, everything else fails at once, and is told.

use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::{Value, json};

use crate::harness::{Missing, TestDaemon, finish, needs_root, per_connection, require};
use crate::servers::{NAMES, Server, allow, needs, plain_python, python, start};

/// Tries an address in the ways there are, and says how each ended: over TCP, with a length of the address
/// that nobody looks at, over UDP with and without connecting first.
const DIAL: &str = r#"
import ctypes, errno, json, socket, struct, sys
address, port, family = sys.argv[1], int(sys.argv[2]), socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
def attempt(deed):
    try: deed(); return 'done'
    except OSError as error: return errno.errorcode[error.errno]
def tcp():
    with socket.socket(family) as stream:
        stream.settimeout(60); stream.connect((address, port))
def long():
    padding = b'\0\0\0\0' if family == socket.AF_INET6 else b''
    raw = struct.pack('=H', family) + struct.pack('!H', port) + padding + socket.inet_pton(family, address)
    library = ctypes.CDLL(None, use_errno=True)
    with socket.socket(family) as stream:
        if library.connect(stream.fileno(), raw.ljust(32, b'\0'), 32): raise OSError(ctypes.get_errno(), '')
def connected():
    with socket.socket(family, socket.SOCK_DGRAM) as packets: packets.connect((address, port)); packets.send(b'?')
def packet():
    with socket.socket(family, socket.SOCK_DGRAM) as packets: packets.sendto(b'?', (address, port))
ways = [tcp, long, connected, packet]
print(json.dumps([attempt(way) for way in ways if way.__name__ in sys.argv[4].split(',')]))
sys.exit(int(sys.argv[3]))"#;

/// How the ways ended in a run that ended so, and what it was told.
fn dial(daemon: &TestDaemon, address: &str, port: u16, code: i32, ways: &str) -> (Value, Vec<Value>) {
    let argv = ["python3", "-c", DIAL, address, &port.to_string(), &code.to_string(), ways];
    let run = daemon.exec("box", json!({ "argv": argv, "timeout": "120s" }));
    assert_eq!(run["exit_code"], code, "{run}");
    let ends = serde_json::from_str(run["stdout"].as_str().unwrap()).unwrap();
    (ends, run["violations"].as_array().cloned().unwrap_or_default())
}

/// What was told of one thing.
fn told_of<'v>(violations: &'v [Value], what: &str) -> &'v Value {
    let what = format!("network: {what}");
    violations.iter().find(|one| one["what"] == what.as_str()).unwrap_or(&Value::Null)
}

per_connection!(an_address_that_is_not_granted_is_refused_at_once_and_told);

fn an_address_that_is_not_granted_is_refused_at_once_and_told() {
    let (daemon, echo) = (start(), Server::echo());
    require!(needs(&daemon, "python3"));
    let port = echo.port;
    let all = "tcp,long,connected,packet";
    let control = plain_python(DIAL, &["127.0.0.1", &port.to_string(), "0", "tcp,long"]);
    assert_eq!(control, json!(["done", "done"]), "the control");
    let wanted = format!("192.0.2.7:{port}");
    // In a sandbox that was never granted anything, and in one that was.
    for granted in [false, true] {
        if granted {
            allow(&daemon, "box", &[format!("192.0.2.8:{port}"), format!("web.test:{port}")]);
        }
        let (ends, violations) = dial(&daemon, "192.0.2.7", port, 1, all);
        assert_eq!(ends, json!(["ENETUNREACH", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"]));
        let remedies: Vec<&str> = violations
            .iter()
            .filter(|one| one["what"] == format!("network: {wanted}"))
            .filter_map(|one| one["remedy"].as_str())
            .collect();
        let command = format!("`isle allow box {wanted}` would grant it");
        assert!(
            remedies.iter().any(|one| one.contains("not_granted") && one.contains(&command)),
            "{violations:?}"
        );
        assert!(remedies.iter().any(|one| one.contains("not_tcp")), "{violations:?}");
        // What nobody looks at is counted by the kernel.
        let unseen = told_of(&violations, "an address");
        assert_eq!(unseen["count"], 2, "{violations:?}");
        assert!(unseen["remedy"].as_str().unwrap().contains("no_route"), "{unseen}");
    }
    let (ends, violations) = dial(&daemon, "2001:db8::7", port, 0, "tcp");
    assert_eq!(ends, json!(["ENETUNREACH"]));
    assert_ne!(told_of(&violations, &format!("[2001:db8::7]:{port}")), &Value::Null, "{violations:?}");
    // Its own addresses are no way out either, and no attempt to leave.
    let (ends, violations) = dial(&daemon, "127.0.0.1", port, 1, "tcp,long");
    assert_eq!((ends, violations), (json!(["ECONNREFUSED", "ECONNREFUSED"]), vec![]));
    assert_eq!(echo.heard().len(), 2, "the control");
    // It is in the log, and a person may be asked for it.
    let log = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(log.contains(&wanted), "{log}");
    let requests = daemon.get("/v1/network/requests").to_string();
    assert!(requests.contains("\"192.0.2.7\""), "{requests}");
}

/// Speaks to an address in the ways that programs connect: waiting for it, from another thread, and without
/// waiting.
const SPEAK: &str = r#"
import asyncio, json, socket, sys, threading
address, port = sys.argv[1], int(sys.argv[2])
heard = {}
def blocking(name):
    try:
        with socket.create_connection((address, port), None) as stream: heard[name] = stream.recv(64).decode()
    except OSError as error: heard[name] = type(error).__name__
async def waiting(name):
    try:
        reader, writer = await asyncio.open_connection(address, port)
        heard[name] = (await reader.read(64)).decode(); writer.close()
    except OSError as error: heard[name] = type(error).__name__
blocking('first')
thread = threading.Thread(target=blocking, args=['thread']); thread.start(); thread.join()
asyncio.run(waiting('loop'))
print(json.dumps(heard))"#;

/// This thread, and what it starts, in a network of its own with these addresses.
pub(crate) fn alone_with(addresses: &[&str]) -> Result<(), Missing> {
    needs_root("make a network of its own for the daemon")?;
    // SAFETY: a network namespace of this thread's own takes nothing from others.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
    let mut commands = vec!["link set lo up".to_owned()];
    commands.extend(addresses.iter().map(|address| format!("address add {address} dev lo nodad")));
    for command in commands {
        let done = finish(Command::new("ip").args(command.split(' ')));
        assert!(done.status.success(), "ip {command}: {done:?}");
    }
    Ok(())
}

per_connection!(a_granted_address_is_reached_by_any_program);

fn a_granted_address_is_reached_by_any_program() {
    require!(alone_with(&["10.77.0.5/32", "10.77.0.6/32", "fd77::5/128"]));
    let four = Server::saying("10.77.0.5:0", "four");
    let other = Server::saying(&format!("10.77.0.6:{}", four.port), "other");
    let six = Server::saying("[fd77::5]:0", "six");
    let daemon = TestDaemon::start_configured(NAMES, &[]);
    require!(needs(&daemon, "python3"));
    let speak = |address: &str, port: u16| python(&daemon, "box", SPEAK, &[address, &port.to_string()]);
    let all = |word: &str| json!({ "first": word, "thread": word, "loop": word });
    assert_eq!(plain_python(SPEAK, &["10.77.0.5", &four.port.to_string()]), all("four"), "the control");
    assert_eq!(speak("10.77.0.5", four.port), all("OSError"));
    assert_eq!((four.heard().len(), six.heard().len()), (4, 1), "each has its word, and heard the control");

    allow(&daemon, "box", &[format!("10.77.0.5:{}", four.port), format!("[fd77::5]:{}", six.port)]);
    assert_eq!(speak("10.77.0.5", four.port), all("four"));
    assert_eq!(speak("::ffff:10.77.0.5", four.port), all("four"));
    assert_eq!(speak("fd77::5", six.port), all("six"));
    // Neither another port of it nor another address.
    assert_eq!(speak("10.77.0.5", six.port), all("OSError"));
    assert_eq!(speak("10.77.0.6", four.port), all("OSError"));
    assert_eq!(other.heard().len(), 1);

    // A program that has a port of its own on every address does not meet itself behind a granted one.
    allow(&daemon, "box", &["10.77.0.5:4321".into()]);
    let own = "import json, socket, sys\nport = int(sys.argv[1]); own = socket.create_server(('0.0.0.0', port))\n\
               try: socket.create_connection(('10.77.0.5', port), 60); print(json.dumps('connected'))\n\
               except OSError as error: print(json.dumps(type(error).__name__))";
    assert_eq!(python(&daemon, "box", own, &["4321"]), "ConnectionRefusedError");

    // A range is reached where something is connected to.
    allow(&daemon, "box", &[format!("10.77.0.0/24:{}", four.port)]);
    assert_eq!(speak("10.77.0.6", four.port), all("other"));
    let grants = daemon.get("/v1/sandboxes/box/grants");
    let used = |grant: String| {
        let found = grants["grants"].as_array().unwrap().iter().find(|one| one["grant"] == grant.as_str());
        found.map_or(Value::Null, |one| one["connections"].clone())
    };
    assert_eq!(used(format!("10.77.0.5:{}", four.port)), 6, "{grants}");
    assert_eq!(used(format!("10.77.0.0/24:{}", four.port)), 3, "{grants}");
    for grant in grants["grants"].as_array().unwrap() {
        daemon.succeeds(&["revoke", "box", grant["grant"].as_str().unwrap()]);
    }
    assert_eq!(speak("10.77.0.6", four.port), all("OSError"));
}

per_connection!(another_port_of_a_granted_name_is_refused_told_and_there_once_it_is_granted);

fn another_port_of_a_granted_name_is_refused_told_and_there_once_it_is_granted() {
    let (daemon, here, there) =
        (start(), Server::saying("127.0.0.1:0", "here"), Server::saying("127.0.0.1:0", "there"));
    require!(needs(&daemon, "python3"));
    allow(&daemon, "box", &[format!("web.test:{}", here.port), "127.0.0.1:1".into()]);
    let ports = [here.port, there.port].map(|port| format!("127.0.0.1:{port}"));
    allow(&daemon, "box", &ports);
    // One program that keeps the address, and tries again when it is told to.
    let script = r#"
import json, os, socket, sys, time
address, heard = socket.gethostbyname('web.test'), []
def reach(port):
    try:
        with socket.create_connection((address, port), 60) as stream: return stream.recv(64).decode()
    except OSError as error: return type(error).__name__
for word in sys.argv[1:]:
    if word == 'wait':
        open('tried', 'w').close()
        while not os.path.exists('granted'): time.sleep(0.02)
    else: heard.append(reach(int(word)))
print(json.dumps(heard))"#;
    let argv = [
        "python3",
        "-c",
        script,
        &here.port.to_string(),
        &there.port.to_string(),
        "wait",
        &there.port.to_string(),
    ];
    let run = daemon.exec("box", json!({ "argv": argv, "timeout": "120s", "wait": "0s" }));
    daemon.exec("box", json!({ "command": "until test -e tried; do sleep 0.02; done", "timeout": "120s" }));
    allow(&daemon, "box", &[format!("web.test:{}", there.port)]);
    daemon.exec("box", json!({ "command": "touch granted" }));
    let path = format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap());
    let run = daemon.post(&path, json!({ "timeout": "120s" }));
    let heard: Value = serde_json::from_str(run["stdout"].as_str().unwrap()).unwrap();
    assert_eq!(heard, json!(["here", "ConnectionRefusedError", "there"]), "{run}");
    let violations = run["violations"].as_array().cloned().unwrap_or_default();
    let told = told_of(&violations, &format!("web.test:{}", there.port));
    assert!(told["remedy"].as_str().unwrap_or_default().contains("port_not_granted"), "{run}");
    // Packets to it are refused, and told.
    let script = "import json, socket, sys\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  try: u.connect(('web.test', 9)); print(json.dumps('connected'))\n\
                  except OSError as error: print(json.dumps(type(error).__name__))";
    assert_eq!(python(&daemon, "box", script, &[]), "ConnectionRefusedError");
    let log = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(log.contains("UDP to web.test:9 is not available"), "{log}");
}
