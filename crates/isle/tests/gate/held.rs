//! A program that keeps connections open until somebody else ends them, says how each ended, and tries to
//! make another: by its name, or through the proxy of tier `process`.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, until, until_some};
use crate::proxied::TUNNEL;

/// How a program gets out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Name,
    Proxy,
}

impl Way {
    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Proxy => "proxy",
        }
    }
}

const HOLD: &str = r"
import json, os, sys
way, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
opening = {'name': lambda: socket.create_connection(('web.test', port), 60), 'proxy': lambda: tunnel(port)}[way]
held = [opening() for _ in range(count)]
address, unused = held[0].getpeername(), socket.socket()
for one in held:
    one.sendall(b'hello')
    assert one.recv(64) == b'hello'
open('ready', 'w')
ends = []
for one in held:
    try: ends.append(one.recv(64).decode())
    except OSError: ends.append('cut')
def attempt(deed):
    try: return deed() or 'done'
    except OSError as error: return errno.errorcode.get(error.errno, type(error).__name__)
def speak():
    one = socket.create_connection(address, 60)
    one.sendall(b'hello')
    return one.recv(64).decode() or 'ended'
tried = {
    'name': [lambda: socket.gethostbyname('web.test'), speak],
    'proxy': [lambda: opening() and 'done', lambda: unused.connect(('127.0.0.1', 3128))],
}[way]
open('writing', 'w').write(json.dumps([ends, [attempt(deed) for deed in tried]]))
os.rename('writing', 'after')";

/// Starts it, and waits until it holds so many connections to `web.test`. Gives what is found in its
/// command line and in no other.
pub(crate) fn hold(daemon: &TestDaemon, sandbox: &str, way: Way, port: u16, count: u32) -> String {
    let (script, marker) = (format!("{TUNNEL}{HOLD}"), format!("it-holds-connections-{port}"));
    let argv = ["python3", "-c", &script, way.as_str(), &port.to_string(), &count.to_string(), &marker];
    daemon.exec(sandbox, json!({ "argv": argv, "wait": "0s" }));
    until("all are connected", || daemon.shell(sandbox, "ls").contains("ready"));
    marker
}

/// Waits for the end of all its connections, none of which may have heard anything; gives how its
/// attempts went to look the name up and speak to the address it had, or to open another way and to
/// connect a socket it had before.
pub(crate) fn ends(daemon: &TestDaemon, sandbox: &str) -> Value {
    let found: Value = until_some("it has seen the end", || {
        serde_json::from_str(daemon.exec(sandbox, json!({ "command": "cat after" }))["stdout"].as_str()?).ok()
    });
    assert!(found[0].as_array().unwrap().iter().all(|end| end == "cut" || end == ""), "{found}");
    found[1].clone()
}
