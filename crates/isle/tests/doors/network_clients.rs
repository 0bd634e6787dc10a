//! Real clients through the gate: TLS with curl and Python, git over HTTP; and who may grant.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::contexts::has;
use crate::harness::{TestDaemon, finish, per_connection, until, until_some};

const NAMES: &str = "[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n";

/// A program of the host that serves until the test is over.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A server in Python, in a directory; it writes its port to the file `port` there.
fn serve(directory: &std::path::Path, script: &str) -> (Serving, u16) {
    let port_file = directory.join("port");
    std::fs::remove_file(&port_file).ok();
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    let serving = Serving(command.spawn().unwrap());
    let port =
        until_some("the server listens", || std::fs::read_to_string(&port_file).ok()?.trim().parse().ok());
    (serving, port)
}

const HTTP: &str = "
import http.server, os
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
open('port.new', 'w').write(str(server.server_port)); os.rename('port.new', 'port')
server.serve_forever()";

const HTTPS: &str = "
import http.server, os, ssl
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
open('port.new', 'w').write(str(server.server_port)); os.rename('port.new', 'port')
server.serve_forever()";

per_connection!(tls_passes_unopened_to_the_granted_name_and_to_no_other);

fn tls_passes_unopened_to_the_granted_name_and_to_no_other() {
    let daemon = TestDaemon::start_configured(NAMES, &[]);
    let directory = tempfile::tempdir().unwrap();
    let made = finish(
        Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=web.test"])
            .args(["-addext", "subjectAltName=DNS:web.test", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(directory.path()),
    );
    assert!(made.status.success(), "{made:?}");
    std::fs::write(directory.path().join("page"), "over TLS\n").unwrap();
    let (_server, port) = serve(directory.path(), HTTPS);
    let hosts = json!({ "hosts": [format!("web.test:{port}/tls"), format!("127.0.0.1:{port}")] });
    daemon.post("/v1/sandboxes/box/grants", hosts);
    let cert = directory.path().join("cert.pem");
    daemon.succeeds(&["cp", cert.to_str().unwrap(), "box:cert.pem"]);
    // The certificate the program sees is the server's own.
    let curl = format!("curl -sS -m 20 --cacert cert.pem https://web.test:{port}/page");
    assert_eq!(daemon.shell("box", &curl), "over TLS\n");
    let untrusted =
        daemon.exec("box", json!({ "command": format!("curl -sS -m 20 https://web.test:{port}/page") }));
    assert_eq!(untrusted["exit_code"], 60, "an error of the certificate stays one: {untrusted}");
    let plain =
        daemon.exec("box", json!({ "command": format!("curl -sS -m 20 http://web.test:{port}/page") }));
    assert!(plain["stdout"].as_str().unwrap().contains("reason: not_tls"), "{plain}");
    if has(&daemon, "python3") {
        for (name, reason) in [("'other.test'", "wrong_server_name"), ("None", "wrong_server_name")] {
            let script = format!(
                "import socket, ssl\n\
                 context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE\n\
                 context.wrap_socket(socket.create_connection(('web.test', {port}), 20), server_hostname={name})"
            );
            let run = daemon.exec("box", json!({ "argv": ["python3", "-c", script] }));
            assert_eq!(run["state"], "failed", "{name}: {run}");
            assert!(run["violations"].to_string().contains(reason), "{name}: {run}");
        }
    }
}

per_connection!(git_clones_through_the_gate);

fn git_clones_through_the_gate() {
    let daemon = TestDaemon::start_configured(NAMES, &[]);
    let directory = tempfile::tempdir().unwrap();
    let script = "set -e; git init -q source; cd source; echo granted > file; git add file\n\
                  git -c user.name=a -c user.email=a@b.test commit -qm first; cd ..\n\
                  git clone -q --bare source repo.git; git -C repo.git update-server-info";
    let made = finish(Command::new("sh").args(["-c", script]).current_dir(directory.path()));
    assert!(made.status.success(), "{made:?}");
    let (_server, port) = serve(directory.path(), HTTP);
    let clone = format!("git clone -q http://web.test:{port}/repo.git && cat repo/file");
    let denied = daemon.exec("box", json!({ "command": clone }));
    assert_eq!(denied["state"], "failed", "{denied}");
    let hosts = json!({ "hosts": [format!("web.test:{port}/http"), format!("127.0.0.1:{port}")] });
    daemon.post("/v1/sandboxes/box/grants", hosts);
    assert_eq!(daemon.shell("box", &clone), "granted\n");
}

per_connection!(denials_and_grants_are_told_as_events);

fn denials_and_grants_are_told_as_events() {
    let daemon = TestDaemon::start_configured(NAMES, &[]);
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": ["web.test:443"] }));
    for _ in 0..3 {
        daemon.exec("box", json!({ "command": "getent hosts secret.evil.example" }));
    }
    let told = |kind: &str| {
        let history = daemon.get(&format!("/v1/events/history?kind={kind}"));
        history["events"].as_array().unwrap().clone()
    };
    until("the grant is told", || told("network_granted").len() == 1);
    until("the denial is told", || !told("network_denied").is_empty());
    let denied = told("network_denied");
    assert_eq!(denied.len(), 1, "each different denial once: {denied:?}");
    assert_eq!(denied[0]["data"]["target"], "secret.evil.example", "{denied:?}");
    assert_eq!((&denied[0]["data"]["reason"], &denied[0]["sandbox"]), (&json!("not_granted"), &json!("box")));
}
