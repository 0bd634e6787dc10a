//! Secrets through the opened gate, with the programs people use: each sends a placeholder, and the server
//! is sent the value, in whatever way and version of HTTP.

use serde_json::{Value, json};

use crate::contexts::has;
use crate::harness::{TestDaemon, per_connection};
use crate::opened::Server;

/// With characters that mean something in headers, addresses and encodings.
const VALUE: &str = "t0k3n/+=&? 4711";

fn start() -> (Server, TestDaemon) {
    let server = Server::start();
    let daemon = server.daemon();
    let hosts = json!([format!("web.test:{}/tls", server.port), format!("127.0.0.1:{}", server.port)]);
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": hosts }));
    daemon.post(
        "/v1/secrets",
        json!({ "name": "TOKEN", "value": VALUE, "hosts": ["web.test"], "places": ["default", "query:key"] }),
    );
    daemon.post("/v1/sandboxes/box/secrets", json!({ "secrets": ["TOKEN"] }));
    (server, daemon)
}

/// The last request the server saw.
fn last(server: &Server) -> Value {
    server.seen().pop().unwrap()
}

per_connection!(http_clients_carry_secrets_they_never_see);

fn http_clients_carry_secrets_they_never_see() {
    let (server, daemon) = start();
    for (version, spoken) in [("--http1.1", "1.1"), ("--http2", "2.0")] {
        let url = server.url("/a?key=$TOKEN&b=1");
        let told = daemon
            .shell("box", &format!("curl -sS -m 30 {version} -H \"X-Key: $TOKEN\" -d \"$TOKEN\" \"{url}\""));
        let seen = last(&server);
        assert_eq!(
            (&seen["httpVersion"], &seen["headers"]["x-key"]),
            (&json!(spoken), &json!(VALUE)),
            "{told}"
        );
        assert_eq!(seen["url"], "/a?key=t0k3n%2F%2B%3D%26%3F%204711&b=1");
        // A body is nobody's business: it has the placeholder.
        let length = daemon.shell("box", "printf %s \"$TOKEN\" | wc -c");
        assert_eq!(seen["size"].to_string(), length.trim());
    }
    let url = server.url("/b");
    let basic = "Basic bWU6dDBrM24vKz0mPyA0NzEx";
    if has(&daemon, "python3") {
        let script = format!(
            "import os\ntry: import requests\nexcept ImportError: from pip._vendor import requests\n\
             requests.get('{url}', auth=('me', os.environ['TOKEN'])).raise_for_status()"
        );
        let run = daemon.exec("box", json!({ "argv": ["python3", "-c", script] }));
        assert_eq!(
            (&run["state"], &last(&server)["headers"]["authorization"]),
            (&json!("completed"), &json!(basic)),
            "{run}"
        );
        let script = format!(
            "import os, socket, ssl\n\
             context = ssl.create_default_context()\n\
             s = context.wrap_socket(socket.create_connection(('web.test', {port}), 30), server_hostname='web.test')\n\
             s.sendall(('GET /socket HTTP/1.1\\r\\nHost: web.test:{port}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n'\n\
             'X-Key: ' + os.environ['TOKEN'] + '\\r\\n\\r\\n').encode())\n\
             print(s.recv(12).decode())",
            port = server.port
        );
        let run = daemon.exec("box", json!({ "argv": ["python3", "-c", script] }));
        assert_eq!(run["stdout"], "HTTP/1.1 101\n", "{run}");
        assert_eq!(last(&server)["headers"]["x-key"], VALUE);
    }
    if has(&daemon, "node") {
        let script =
            format!("fetch('{url}', {{ headers: {{ 'x-key': process.env.TOKEN }} }}).then(r => r.text())");
        let run = daemon.exec("box", json!({ "argv": ["node", "-e", script] }));
        assert_eq!(
            (&run["state"], &last(&server)["headers"]["x-key"]),
            (&json!("completed"), &json!(VALUE)),
            "{run}"
        );
    }
    let inside = daemon
        .shell("box", "env; grep -rsF t0k3n /proc/self/environ /home /tmp /workspace /etc/isle || true");
    assert!(!inside.contains("t0k3n"), "{inside}");
}

per_connection!(git_clones_and_pushes_with_a_secret_as_its_password);

fn git_clones_and_pushes_with_a_secret_as_its_password() {
    let (server, daemon) = start();
    std::fs::write(server.directory.path().join("token"), VALUE).unwrap();
    let url = format!("https://me:$TOKEN@web.test:{}/git/private/repo.git", server.port);
    let script = format!(
        "set -e; git clone -q \"{url}\" repo; cd repo; cat file; echo more > file\n\
         git -c user.name=a -c user.email=a@b.test commit -qam second; git push -q origin HEAD; git rev-parse HEAD"
    );
    let told = daemon.shell("box", &script);
    let (file, head) = told.split_once('\n').unwrap();
    assert_eq!(file, "granted");
    let kept = std::process::Command::new("git")
        .args(["-C", "repo.git", "rev-parse", "HEAD"])
        .current_dir(server.directory.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&kept.stdout).trim(), head.trim());
    // Without the secret nobody gets in.
    daemon.post("/v1/sandboxes/box/secrets/detach", json!({ "secrets": ["TOKEN"] }));
    let refused = daemon.exec("box", json!({ "command": "cd repo && GIT_TERMINAL_PROMPT=0 git fetch -q" }));
    assert_eq!(refused["state"], "failed", "{refused}");
}
