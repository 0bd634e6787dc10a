//! Addresses that are dialed without a name. There is no route to any, granted or not, so nothing can leave;
//! it fails at once, and is told.

use serde_json::{Value, json};

use crate::harness::TestDaemon;
use crate::servers::{Server, allow, has, plain_python, python, start};

/// Dials an address over TCP and UDP, and says how each ended.
const DIAL: &str = r#"
import errno, json, socket, sys
address, port, family = sys.argv[1], int(sys.argv[2]), socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
def attempt(deed):
    try: deed(); return 'done'
    except OSError as error: return errno.errorcode[error.errno]
def tcp():
    with socket.socket(family) as stream:
        stream.settimeout(60); stream.connect((address, port))
def udp():
    with socket.socket(family, socket.SOCK_DGRAM) as packets: packets.sendto(b'?', (address, port))
print(json.dumps([attempt(tcp), attempt(udp)]))
sys.exit(int(sys.argv[3]))"#;

/// What a run that ended so is told of addresses.
fn told(daemon: &TestDaemon, address: &str, port: u16, code: i32) -> (Value, Value) {
    let argv = ["python3", "-c", DIAL, address, &port.to_string(), &code.to_string()].map(str::to_owned);
    let run = daemon.exec("box", json!({ "argv": argv, "timeout": "120s" }));
    assert_eq!(run["exit_code"], code, "{run}");
    let ends = serde_json::from_str(run["stdout"].as_str().unwrap()).unwrap();
    let violations = run["violations"].as_array().cloned().unwrap_or_default();
    let no_route = violations.iter().find(|violation| violation["what"] == "network: an address");
    (ends, no_route.cloned().unwrap_or_default())
}

#[test]
fn an_address_that_is_dialed_is_refused_at_once_and_told() {
    let (daemon, echo) = (start(), Server::echo());
    if !has(&daemon, "python3") {
        return;
    }
    let port = echo.port;
    assert_eq!(
        plain_python(DIAL, &["127.0.0.1", &port.to_string(), "0"]),
        json!(["done", "done"]),
        "the control"
    );
    let unreachable = json!(["ENETUNREACH", "ENETUNREACH"]);
    for granted in [false, true] {
        if granted {
            let hosts =
                [format!("192.0.2.7:{port}"), format!("127.0.0.1:{port}"), format!("web.test:{port}")];
            allow(&daemon, "box", &hosts);
        }
        let (ends, violation) = told(&daemon, "192.0.2.7", port, 1);
        assert_eq!((&ends, &violation["count"]), (&unreachable, &json!(2)), "{violation}");
        let remedy = violation["remedy"].as_str().unwrap();
        assert!(remedy.contains("no_route") && remedy.contains("granted name"), "{violation}");
        // One that ended well is not told, and of what it did at most the next is, if it comes at once.
        assert_eq!(told(&daemon, "192.0.2.7", port, 0), (unreachable.clone(), Value::Null));
        daemon.exec("box", json!({ "command": "false" }));
        let run = daemon.exec("box", json!({ "command": "false" }));
        assert_eq!(run["violations"], Value::Null, "{run}");
    }
    let (ends, violation) = told(&daemon, "2001:db8::7", port, 1);
    assert!(ends.as_array().unwrap().iter().all(|end| end != "done"), "{ends}");
    println!("over IPv6: {ends} {violation}");
    // Its own addresses are no way out either, and no attempt to leave.
    let (ends, violation) = told(&daemon, "127.0.0.1", port, 1);
    assert_eq!((&ends[0], &violation), (&json!("ECONNREFUSED"), &Value::Null));
    // By the name it works, and the log has both.
    let speak = "import socket, sys\ns = socket.create_connection(('web.test', int(sys.argv[1])), 60)\n\
                 s.sendall(b'hello'); print(len(s.recv(5)))";
    assert_eq!(python(&daemon, "box", speak, &[&port.to_string()]), 5);
    assert_eq!(echo.heard().len(), 2, "the control and the name");
    let log = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(log.contains("an address was dialed directly"), "{log}");
}
