//! Secrets that servers send back. A program in a sandbox asks the host of its secret in every way that is
//! known to be answered with what was sent, and carries all it hears to another host that is granted too:
//! the value never arrives there. The host of the secret has it each time.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, per_connection, until};
use crate::opened::Server;

const VALUE: &str = "s3cr3t-Value+4711/x";

/// A daemon whose sandbox may reach the host of the secret, encrypted, and another one.
fn start(other: u16) -> (Server, TestDaemon) {
    let server = Server::start();
    let authority = server.directory.path().join("ca.pem");
    let daemon = TestDaemon::start_configured(
        &format!(
            "network_ca_files = [{:?}]\n[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n",
            authority.to_str().unwrap()
        ),
        &[],
    );
    let hosts = json!([
        format!("web.test:{}/tls", server.port),
        format!("other.test:{other}/http"),
        format!("127.0.0.1:{},{other}", server.port),
    ]);
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": hosts }));
    daemon.post("/v1/secrets", json!({ "name": "KEY", "value": VALUE, "hosts": ["web.test"] }));
    daemon.post("/v1/sandboxes/box/secrets", json!({ "secrets": ["KEY"] }));
    (server, daemon)
}

/// Another host, which keeps all it is sent.
fn collector() -> (u16, std::sync::Arc<std::sync::Mutex<Vec<u8>>>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut all = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                all.extend_from_slice(&buffer[..count]);
                if all.ends_with(b"THE END") {
                    break;
                }
            }
            kept.lock().unwrap().extend_from_slice(&all);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
        }
    });
    (port, heard)
}

fn events(daemon: &TestDaemon, kind: &str) -> Vec<Value> {
    daemon.get(&format!("/v1/events/history?kind={kind}"))["events"].as_array().cloned().unwrap_or_default()
}

per_connection!(what_a_server_sends_back_of_a_secret_never_reaches_another_host);

fn what_a_server_sends_back_of_a_secret_never_reaches_another_host() {
    let (other, heard) = collector();
    let (server, daemon) = start(other);
    let base = format!("https://web.test:{}/reflect", server.port);
    let ways = ["headers", "location", "gzip", "deflate", "br", "zstd", "pieces", "forms", "plain"];
    for version in ["--http1.1", "--http2"] {
        for way in ways {
            let ask =
                |fields: &str| format!("curl -sS -m 30 -i --raw {version} {fields} '{base}/{way}' >> heard");
            daemon.shell("box", &ask("-H \"Authorization: Bearer $KEY\" --compressed"));
            assert_eq!(server.seen().pop().unwrap(), json!({ "way": way, "sent": VALUE }), "{version}");
            // Once more without it: the server has kept it.
            daemon.shell("box", &ask("-H 'Accept-Encoding: zstd, br, gzip'"));
        }
        daemon.shell(
            "box",
            &format!("for at in $(seq 0 {}); do curl -sS -m 30 {version} -r $at-$at -o part '{base}/range'; head -c 1 part >> heard; done", VALUE.len() - 1),
        );
    }
    let run = daemon.exec(
        "box",
        json!({ "command": format!("printf 'THE END' >> heard; wc -c < heard; curl -sS -m 30 --data-binary @heard http://other.test:{other}/; curl -sS -m 30 -o /dev/null -H \"X-API-Key: $KEY\" {base}/plain") }),
    );
    assert_eq!(run["exit_code"], 0, "{run}");
    until("all of it has arrived", || heard.lock().unwrap().ends_with(b"THE END"));
    let heard = String::from_utf8_lossy(&heard.lock().unwrap()).to_lowercase();
    assert!(
        heard.contains("before ******************* after") && heard.contains("x-request-id: ****"),
        "{heard}"
    );
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in
        ["s3cr3t", "4711/x", "4711%2fx", &hex[4..], "czNjcjN0", "zm3jcjn0", "s3cr3t-value%2b4711", "mzy3i"]
    {
        assert!(!heard.contains(&form.to_lowercase()), "{form}: {heard}");
    }
    assert!(run["note"].to_string().contains("KEY by web.test"), "{run}");
    // Both are told, with names and places and no value, and few events tell of many.
    until("it is told", || !events(&daemon, "secret_reflected").is_empty());
    let (swapped, reflected) = (events(&daemon, "secret_swapped"), events(&daemon, "secret_reflected"));
    assert!(swapped.len() <= 4 && reflected.len() <= 4, "{swapped:?} {reflected:?}");
    let data = &swapped[0]["data"];
    assert_eq!(
        (&data["secret"], &data["target"]),
        (&json!("KEY"), &json!(format!("web.test:{}", server.port)))
    );
    assert!(swapped.iter().any(|event| event["data"]["place"] == "authorization"), "{swapped:?}");
    assert!(reflected.iter().any(|event| event["data"]["part"] == "body"), "{reflected:?}");
    assert!(!format!("{swapped:?}{reflected:?}").contains("s3cr3t"));
    let metrics = daemon.get("/v1/stats").to_string();
    assert!(
        metrics.contains("isle_secret_swaps_total") && metrics.contains("isle_secret_reflections_total"),
        "{metrics}"
    );
}

per_connection!(a_secret_is_placed_where_its_owner_says_and_the_denial_names_the_flag);

fn a_secret_is_placed_where_its_owner_says_and_the_denial_names_the_flag() {
    let (other, _) = collector();
    let (server, daemon) = start(other);
    let url = server.url("/a");
    let before = server.seen().len();
    for (ask, flag) in [
        (format!("curl -sS -m 30 -H \"X-Request-Id: $KEY\" {url}"), "--place header:x-request-id"),
        (format!("curl -sS -m 30 -H \"Origin: $KEY\" {url}"), "--place header:origin"),
        (format!("curl -sS -m 30 -b \"a=$KEY\" {url}"), "--place header:cookie"),
        (format!("curl -sS -m 30 \"{url}?x=$KEY\""), "--place query:x"),
        (format!("curl -sS -m 30 -u \"$KEY:\" {url}"), "--place basic-user"),
        (format!("curl -sS -m 30 -X TRACE -H \"Authorization: Bearer $KEY\" {url}"), "isle secret list"),
    ] {
        let run = daemon.exec("box", json!({ "command": ask }));
        let text = run["stdout"].as_str().unwrap();
        assert!(text.contains("reason: secret_m") && text.contains(flag), "{ask}: {run}");
        assert!(run["violations"].to_string().contains("secret_m"), "{run}");
    }
    assert_eq!(server.seen().len(), before, "none of them was sent");
    // Named, it goes there; and in the list it is seen, with what remains.
    let places = ["--place", "default", "--place", "query:x", "--place", "basic-user"];
    let file = server.directory.path().join("value");
    std::fs::write(&file, VALUE).unwrap();
    let set = ["secret", "set", "KEY", "--file", file.to_str().unwrap()];
    daemon.succeeds(&[&set[..], &places[..]].concat());
    daemon.shell("box", &format!("curl -sS -m 30 \"{url}?x=$KEY\""));
    assert_eq!(server.seen().pop().unwrap()["url"], "/a?x=s3cr3t-Value%2B4711%2Fx");
    let listed = daemon.get("/v1/secrets");
    assert_eq!(listed["secrets"][0]["places"], json!(["authorization", "api-key", "query:x", "basic-user"]));
    assert!(listed["remains"].as_str().unwrap().contains("reversed"), "{listed}");
    assert!(daemon.succeeds(&["secret", "list"]).contains("query:x"));
    for wrong in [json!(["header:host"]), json!(["body"]), json!([]), json!(["method:TRACE"])] {
        let body = json!({ "name": "KEY", "value": VALUE, "places": wrong });
        let error = daemon.refused("POST", "/v1/secrets", Some(&body));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    }
}

per_connection!(a_host_that_had_a_secret_stays_looked_through);

fn a_host_that_had_a_secret_stays_looked_through() {
    let (other, _) = collector();
    let (server, daemon) = start(other);
    let url = format!("https://web.test:{}/reflect/plain", server.port);
    let ask = format!("curl -sS -m 30 {url}");
    let starred = format!("before {} after\n", "*".repeat(VALUE.len()));
    assert_eq!(
        daemon.shell("box", &format!("curl -sS -m 30 -H \"X-API-Key: $KEY\" {url}")),
        starred,
        "the server has it now"
    );
    daemon.post("/v1/secrets", json!({ "name": "KEY", "value": VALUE, "hosts": ["elsewhere.test"] }));
    assert_eq!(daemon.shell("box", &ask), starred, "it goes elsewhere");
    daemon.post("/v1/sandboxes/box/secrets/detach", json!({ "secrets": ["KEY"] }));
    assert_eq!(daemon.shell("box", &ask), starred, "it was taken back");
    // Another sandbox never had it: its connections are its own, and nothing of them is changed.
    let hosts = json!([format!("web.test:{}/tls", server.port), format!("127.0.0.1:{}", server.port)]);
    daemon.post("/v1/sandboxes/plain/grants", json!({ "hosts": hosts }));
    let unopened = daemon.exec("plain", json!({ "command": format!("curl -sSk -m 30 {url}") }));
    assert_eq!(unopened["exit_code"], 0, "{unopened}");
}
