//! TLS that the gate opens, with the programs people use: they believe the sandbox's own authority, in
//! that sandbox only, and requests are granted one by one. The server is this test's own, on loopback,
//! under a name that only the daemon knows, with a certificate that only the daemon believes.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::contexts::has;
use crate::harness::{TestDaemon, certificate_for, finish, per_connection, sh, until, until_some};

/// A server of the host that serves until the test is over.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    pub(crate) directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Repositories to clone.
const REPOSITORIES: &str = "\
git init -q source; cd source; echo granted > file; git add file
git -c user.name=a -c user.email=a@b.test commit -qm first; cd ..
git clone -q --bare source repo.git; git -C repo.git config http.receivepack true";

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        certificate_for(directory.path(), "web.test");
        sh(directory.path(), REPOSITORIES);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doors/opened_server.js");
        let mut command = Command::new("node");
        command.arg(script).current_dir(directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let mut server = Self { child, port: 0, directory };
        let port_file = server.directory.path().join("port");
        server.port =
            until_some("the server listens", || std::fs::read_to_string(&port_file).ok()?.parse().ok());
        server
    }

    /// A daemon that knows the server's name and believes its authority.
    pub(crate) fn daemon(&self) -> TestDaemon {
        self.daemon_with("")
    }

    /// The same with more settings.
    pub(crate) fn daemon_with(&self, settings: &str) -> TestDaemon {
        let authority = self.directory.path().join("ca.pem");
        let config = format!(
            "{settings}network_ca_files = [{:?}]\n[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n",
            authority.to_str().unwrap()
        );
        TestDaemon::start_configured(&config, &[])
    }

    /// What it saw, oldest first.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.path().join("seen")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://web.test:{}{path}", self.port)
    }

    /// Grants requests of it; says nothing of what else is granted.
    pub(crate) fn allow(&self, daemon: &TestDaemon, sandbox: &str, requests: &[&str]) {
        let mut hosts = vec![format!("127.0.0.1:{}", self.port)];
        hosts.extend(requests.iter().map(|request| self.url(request)));
        daemon.post(&format!("/v1/sandboxes/{sandbox}/grants"), json!({ "hosts": hosts }));
    }
}

per_connection!(requests_are_granted_one_by_one_with_curl_over_both_versions_of_http);

fn requests_are_granted_one_by_one_with_curl_over_both_versions_of_http() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box", &["/v1/* GET,PUT"]);
    for (version, spoken) in [("--http1.1", "1.1"), ("--http2", "2.0")] {
        let url = server.url("/v1/a?x=1");
        let told = daemon.shell("box", &format!("curl -sS -m 30 {version} '{url}'"));
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["httpVersion"], &told["url"]), (&json!(spoken), &json!("/v1/a?x=1")), "{told}");
        let upload = format!(
            "head -c 5000000 /dev/urandom > upload; sha256sum < upload | cut -d ' ' -f 1; \
             curl -sS -m 60 {version} -T upload '{}'",
            server.url("/v1/up")
        );
        let told = daemon.shell("box", &upload);
        let (sum, told) = told.split_once('\n').unwrap();
        let told: Value = serde_json::from_str(told).unwrap();
        assert_eq!((&told["size"], &told["sha256"]), (&json!(5_000_000), &json!(sum)), "{version}");
        for (method, path, reason) in [
            ("DELETE", "/v1/a", "request_not_granted"),
            ("GET", "/v2/a", "request_not_granted"),
            ("GET", "/v1/..%2fadmin", "ambiguous_path"),
        ] {
            let command = format!(
                "curl -sS -m 30 {version} --path-as-is -X {method} -w '%{{http_code}}' '{}'",
                server.url(path)
            );
            let run = daemon.exec("box", json!({ "command": command }));
            let text = run["stdout"].as_str().unwrap();
            assert!(text.contains(&format!("reason: {reason}\n")) && text.ends_with("403"), "{run}");
            assert!(run["violations"].to_string().contains(reason), "{run}");
        }
    }
    assert!(
        !server.seen().is_empty()
            && server.seen().iter().all(|seen| seen["url"].as_str().unwrap().starts_with("/v1/"))
    );
    let told = || daemon.get("/v1/events/history?kind=network_denied").to_string();
    until("denied requests are told", || told().contains("request_not_granted"));
    // A command of its own is granted requests, too.
    let (local, requests) = (format!("127.0.0.1:{}", server.port), format!("{} GET", server.url("/once")));
    let url = server.url("/once");
    let once = daemon
        .succeeds(&["run", "--allow", &local, "--allow", &requests, "--", "curl", "-sS", "-m", "30", &url]);
    assert!(once.contains("/once"), "{once}");
}

per_connection!(programs_believe_the_sandbox_s_authority_and_others_do_not);

fn programs_believe_the_sandbox_s_authority_and_others_do_not() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box", &["/v1/*"]);
    let url = server.url("/v1/a");
    if has(&daemon, "python3") {
        let urllib = format!("import urllib.request; print(urllib.request.urlopen('{url}').read().decode())");
        let requests = format!(
            "try: import requests\nexcept ImportError: from pip._vendor import requests\nprint(requests.get('{url}').text)"
        );
        for script in [urllib, requests] {
            let run = daemon.exec("box", json!({ "argv": ["python3", "-c", script] }));
            assert!(run["stdout"].as_str().unwrap().contains("/v1/a"), "{run}");
        }
    }
    if has(&daemon, "node") {
        let script = format!("fetch('{url}').then(r => r.text()).then(t => console.log(t))");
        let run = daemon.exec("box", json!({ "argv": ["node", "-e", script] }));
        assert!(run["stdout"].as_str().unwrap().contains("/v1/a"), "{run}");
    }
    // Who sets a variable means it.
    let own = json!({ "command": "echo $SSL_CERT_FILE", "env": { "SSL_CERT_FILE": "/mine" } });
    assert_eq!(daemon.exec("box", own)["stdout"], "/mine\n");
    // The authority is in this sandbox and in no other, and the image is as it was.
    let authority = daemon.shell("box", "cat /etc/isle/ca.pem");
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----\n"), "{authority}");
    let line = authority.lines().nth(3).unwrap();
    let other = daemon.shell("other", &format!("ls /etc/isle 2>/dev/null; grep -rlF '{line}' /etc/ssl; env"));
    assert!(!other.contains("isle/ca") && !other.contains("ca.pem") && !other.contains("CERT"), "{other}");
    // A certificate of the server's that is wrong is not hidden behind ours.
    let plain = TestDaemon::start_configured("[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n", &[]);
    server.allow(&plain, "box", &["/v1/*"]);
    let told = plain.shell("box", &format!("curl -sS -m 30 -w '%{{http_code}}' '{url}'"));
    assert!(told.contains("unknown issuer") && told.ends_with("502"), "{told}");
}

per_connection!(git_clones_and_pushes_and_a_websocket_talks_through_the_opened_gate);

fn git_clones_and_pushes_and_a_websocket_talks_through_the_opened_gate() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box", &["/git/repo.git/* GET,POST", "/socket GET"]);
    let script = format!(
        "set -e; git clone -q {} repo; cd repo; cat file; head -c 3000000 /dev/urandom > large; git add large; \
         git -c user.name=a -c user.email=a@b.test commit -qm second; git push -q origin HEAD; \
         git rev-parse HEAD; git -C . ls-remote {} 2>&1 | tail -n 1 | grep -c 403",
        server.url("/git/repo.git"),
        server.url("/git/other.git")
    );
    let told = daemon.shell("box", &script);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!((lines[0], lines[2]), ("granted", "1"), "{told}");
    let head = finish(
        Command::new("git")
            .args(["-C", "repo.git", "rev-parse", "HEAD"])
            .current_dir(server.directory.path()),
    );
    assert_eq!(String::from_utf8_lossy(&head.stdout).trim(), lines[1]);
    if has(&daemon, "python3") {
        let script = format!(
            "import socket, ssl\n\
             context = ssl.create_default_context(); context.set_alpn_protocols(['http/1.1'])\n\
             s = context.wrap_socket(socket.create_connection(('web.test', {port}), 30), server_hostname='web.test')\n\
             s.sendall(b'GET /socket HTTP/1.1\\r\\nHost: web.test:{port}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')\n\
             heard = b''\n\
             while b'\\r\\n\\r\\n' not in heard: heard += s.recv(1000)\n\
             s.sendall(b'to and fro')\n\
             back = b''\n\
             while len(back) < 10: back += s.recv(100)\n\
             print(heard.split(b'\\r\\n')[0].decode(), back.decode())",
            port = server.port
        );
        let run = daemon.exec("box", json!({ "argv": ["python3", "-c", script] }));
        assert_eq!(run["stdout"], "HTTP/1.1 101 Switching Protocols to and fro\n", "{run}");
    }
}

per_connection!(a_sandbox_keeps_its_authority_when_the_daemon_ends);

fn a_sandbox_keeps_its_authority_when_the_daemon_ends() {
    let server = Server::start();
    let mut daemon = server.daemon();
    server.allow(&daemon, "box", &["/v1/*"]);
    let before = daemon.shell("box", "cat /etc/isle/ca.pem; grep -c BEGIN $SSL_CERT_FILE");
    daemon.terminate();
    daemon.launch();
    let after = daemon.shell("box", "cat /etc/isle/ca.pem; grep -c BEGIN $SSL_CERT_FILE");
    assert_eq!(before, after);
    let told = daemon.shell("box", &format!("curl -sS -m 30 '{}'", server.url("/v1/a")));
    assert!(told.contains("/v1/a"), "{told}");
}
