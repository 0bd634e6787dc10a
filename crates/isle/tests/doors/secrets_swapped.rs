//! Secrets on their way out: a request to a host of a secret carries its value, any other the placeholder.
//! The server is this test's own, on loopback, with a certificate that only the daemon believes, and it
//! writes down what it is sent.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::harness::{TestDaemon, certificate_for, per_connection, until, until_some};

/// Serves TLS on one port and plain HTTP on another, and writes down each Authorization and address.
const SERVER: &str = "
import http.server, os, ssl, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = self.headers.get('Authorization', '-')
        with open('heard', 'a') as heard: heard.write(self.path + ' ' + said + '\\n')
        body = ('echo ' + said).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments): pass
plain = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
sealed = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')
sealed.socket = context.wrap_socket(sealed.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
open('ports.new', 'w').write(f'{sealed.server_port} {plain.server_port}'); os.rename('ports.new', 'ports')
sealed.serve_forever()";

struct Server {
    child: Child,
    directory: tempfile::TempDir,
    sealed: u16,
    plain: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        certificate_for(directory.path(), "api.test");
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).current_dir(directory.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, directory, sealed: 0, plain: 0 };
        let ports = server.directory.path().join("ports");
        (server.sealed, server.plain) = until_some("the server listens", || {
            let text = std::fs::read_to_string(&ports).ok()?;
            let (sealed, plain) = text.split_once(' ')?;
            Some((sealed.parse().ok()?, plain.parse().ok()?))
        });
        server
    }

    fn daemon(&self) -> TestDaemon {
        let config = format!(
            "network_ca_files = [{:?}]\n[network_hosts]\n\"api.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n",
            self.directory.path().join("ca.pem").to_str().unwrap()
        );
        TestDaemon::start_configured(&config, &[])
    }

    fn allow(&self, daemon: &TestDaemon, sandbox: &str) {
        let (sealed, plain) = (self.sealed, self.plain);
        let hosts = json!({ "hosts": [
            format!("api.test:{sealed}/tls"), format!("other.test:{plain}/http"), format!("api.test:{plain}/http"),
            format!("127.0.0.1:{sealed},{plain}"),
        ]});
        daemon.post(&format!("/v1/sandboxes/{sandbox}/grants"), hosts);
    }

    /// What it was last sent.
    fn heard(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("heard")).unwrap_or_default();
        text.lines().last().unwrap_or_default().to_owned()
    }

    /// A request to the host of the secret.
    fn asking(&self, path: &str) -> String {
        format!("curl -sS -m 30 -H \"Authorization: Bearer $KEY\" 'https://api.test:{}{path}'", self.sealed)
    }
}

fn set(daemon: &TestDaemon, value: &str) {
    daemon.post("/v1/secrets", json!({"name": "KEY", "value": value, "hosts": ["api.test"]}));
}

per_connection!(the_hosts_of_a_secret_see_its_value_and_nobody_else_does);

fn the_hosts_of_a_secret_see_its_value_and_nobody_else_does() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box");
    let (first, second) = ("the-first-value-4711", "the-second-value-4712");
    set(&daemon, first);
    daemon.post("/v1/sandboxes/box/secrets", json!({"secrets": ["KEY"]}));
    // What the host sends back is masked.
    let said = daemon.shell("box", &server.asking("/1"));
    assert_eq!(said, format!("echo Bearer {}", "*".repeat(first.len())));
    assert_eq!(server.heard(), format!("/1 Bearer {first}"));
    // A new value holds from the next request on, also for a program that goes on.
    set(&daemon, second);
    daemon.shell("box", &server.asking("/2"));
    assert_eq!(server.heard(), format!("/2 Bearer {second}"));
    // Another host, and the same one without encryption, get the placeholder, and that is told.
    for (host, unencrypted) in [("other.test", false), ("api.test", true)] {
        let plain =
            format!("curl -sS -m 30 -H \"Authorization: Bearer $KEY\" http://{host}:{}/plain", server.plain);
        daemon.exec("box", json!({"command": plain}));
        assert!(!server.heard().contains(second), "{}", server.heard());
        until("the stray is told", || {
            let told = daemon.get("/v1/events/history?kind=secret_strayed")["events"].clone();
            told.as_array().unwrap().iter().any(|event| {
                event["data"]["secret"] == "KEY"
                    && event["data"]["target"].as_str().unwrap().starts_with(host)
                    && (event["data"]["unencrypted"] == true) == unencrypted
            })
        });
    }
    // Taken back, expired or removed, it stays a placeholder.
    daemon.post("/v1/sandboxes/box/secrets/detach", json!({"secrets": ["KEY"]}));
    daemon.exec("box", json!({"command": server.asking("/3").replace("$KEY", "isle-secret-KEY-x")}));
    assert!(!server.heard().contains(second), "{}", server.heard());
}

per_connection!(a_secret_of_a_run_is_swapped_while_that_run_goes_on);

fn a_secret_of_a_run_is_swapped_while_that_run_goes_on() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box");
    let value = "a-value-of-one-run-4713";
    set(&daemon, value);
    let run = daemon.exec(
        "box",
        json!({
            "command": format!("{} && echo && echo $KEY > kept", server.asking("/run")),
            "secrets": ["KEY"],
        }),
    );
    assert_eq!(run["state"], "completed", "{run}");
    assert!(run["stdout"].as_str().unwrap().starts_with("echo Bearer"), "{run}");
    assert_eq!(server.heard(), format!("/run Bearer {value}"));
    let later = format!("KEY=$(cat kept); {}", server.asking("/later").replacen("-sS", "-sSk", 1));
    daemon.exec("box", json!({"command": later}));
    assert!(!server.heard().contains(value), "{}", server.heard());
    let directory = server.directory.path();
    // A one-shot has it too, and its placeholder is its own.
    let (sealed, script) = (server.sealed, server.asking("/once"));
    let allow = [format!("--allow=api.test:{sealed}/tls"), format!("--allow=127.0.0.1:{sealed}")];
    daemon.succeeds(&["run", &allow[0], &allow[1], "--secret", "KEY", "--", "sh", "-c", &script]);
    assert_eq!(server.heard(), format!("/once Bearer {value}"), "{directory:?}");
}
