//! Real clients where the gate opens TLS, none of which is told anything by hand. Each is also sent to the
//! same server where the gate does not open it: nobody vouches for that server then, and a client that
//! went on would prove nothing.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use crate::harness::{Missing, TestDaemon, certificate_for, finish, per_connection, require, skip_part};
use crate::servers::{NAMES, Serving, allow, has, make_process, needs};

/// Says what it was asked for, over TLS, with a certificate of an authority of its own.
const SERVER: &str = "
import http.server, os, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = b'asked for ' + self.path.encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        stream, address = super().get_request()
        return context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False), address
server = Server(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')
open('port.new', 'w').write(str(server.server_port)); os.rename('port.new', 'port')
server.serve_forever()";

/// A server, and two sandboxes that may ask it: `box` for some of its pages, so that the gate opens TLS,
/// and `closed` for anything.
struct Scene {
    daemon: TestDaemon,
    url: String,
    opened: Vec<String>,
    closed: Vec<String>,
    _server: Serving,
    _directory: tempfile::TempDir,
}

const PAGE: &str = "/page";
const TOLD: &str = "asked for /page";

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        certificate_for(directory.path(), "web.test");
        let (server, port) = Serving::python(directory.path(), SERVER);
        let authority = directory.path().join("ca.pem");
        let config = format!("network_ca_files = [{:?}]\n{NAMES}", authority.to_str().unwrap());
        let daemon = TestDaemon::start_configured(&config, &[]);
        let (address, origin) = (format!("127.0.0.1:{port}"), format!("https://web.test:{port}"));
        let closed = vec![format!("web.test:{port}/tls"), address.clone()];
        allow(&daemon, "closed", &closed);
        let opened = vec![format!("{origin}{PAGE} GET"), address];
        let url = format!("{origin}{PAGE}");
        let scene = Self { daemon, url, opened, closed, _server: server, _directory: directory };
        scene.open("box");
        scene
    }

    /// Grants a sandbox what the gate opens TLS for.
    fn open(&self, sandbox: &str) {
        allow(&self.daemon, sandbox, &self.opened);
    }

    /// Puts a program of the host into both sandboxes.
    fn bring(&self, program: &Path, name: &str) {
        for sandbox in ["box", "closed"] {
            let place = format!("{sandbox}:{name}");
            self.daemon.succeeds(&["cp", program.to_str().unwrap(), &place]);
        }
    }

    /// A command that asks for the page: believes the gate and nobody else.
    fn believes(&self, command: &str) {
        self.believes_in("box", "closed", command);
    }

    /// The same in a sandbox where the gate opens TLS, and one where it does not.
    fn believes_in(&self, opened: &str, closed: &str, command: &str) {
        let ask = |sandbox| self.daemon.exec(sandbox, json!({ "command": command, "timeout": "120s" }));
        let run = ask(opened);
        assert!(run["stdout"].as_str().unwrap().contains(TOLD) && run["exit_code"] == 0, "{command}: {run}");
        let run = ask(closed);
        assert!(!run["stdout"].as_str().unwrap().contains(TOLD), "{command}: nobody vouches for it: {run}");
        assert_ne!(run["exit_code"], 0, "{command}: {run}");
    }

    /// The same also without the variables of the sandbox, by the system's stores alone.
    fn believes_always(&self, command: &str) {
        self.believes(command);
        self.believes(&format!("env -i PATH=\"$PATH\" HOME=\"$HOME\" {command}"));
    }
}

per_connection!(programs_behind_the_proxy_believe_the_gate_by_their_variables);

/// Nothing of the host's can be changed there, so the variables are all that programs are told.
fn programs_behind_the_proxy_believe_the_gate_by_their_variables() {
    let scene = Scene::new();
    let (url, daemon) = (&scene.url, &scene.daemon);
    require!(make_process(daemon, "plain"));
    require!(make_process(daemon, "shut"));
    scene.open("plain");
    allow(daemon, "shut", &scene.closed);
    let host = url.trim_start_matches("https://").trim_end_matches(PAGE);
    let urllib = format!("import urllib.request; print(urllib.request.urlopen('{url}', timeout=60).read())");
    let requests = format!("import requests; print(requests.get('{url}', timeout=60).text)");
    let mut commands = vec![
        format!("curl -sS -m 60 {url}"),
        format!("curl -sS -m 60 -x socks5h://127.0.0.1:3128 {url}"),
        format!("/usr/bin/python3 -c \"{urllib}\""),
    ];
    if daemon.exec("plain", json!({ "argv": ["/usr/bin/python3", "-c", "import requests"] }))["exit_code"]
        == 0
    {
        commands.push(format!("/usr/bin/python3 -c \"{requests}\""));
    }
    if has(daemon, "openssl") {
        let ask =
            format!("printf 'GET {PAGE} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n'");
        let connect = format!(
            "openssl s_client -quiet -verify_return_error -proxy 127.0.0.1:3128 -connect {host} -servername web.test"
        );
        commands.push(format!("{ask} | {connect} -ign_eof 2>/dev/null"));
    }
    for command in commands {
        scene.believes_in("plain", "shut", &command);
    }
    // A request of the host that is not granted is answered within, as everywhere.
    let run = daemon.exec("plain", json!({ "command": format!("curl -sS -m 60 {url}-other") }));
    assert!(run["stdout"].as_str().unwrap().contains("request_not_granted"), "{run}");
}

per_connection!(programs_that_use_the_system_s_authorities_believe_the_gate);

fn programs_that_use_the_system_s_authorities_believe_the_gate() {
    let scene = Scene::new();
    let (url, daemon) = (&scene.url, &scene.daemon);
    let host = url.trim_start_matches("https://").trim_end_matches(PAGE);
    scene.believes_always(&format!("curl -sS -m 60 {url}"));
    if has(daemon, "wget") {
        scene.believes_always(&format!("wget -q -T 60 -t 1 -O - {url}"));
    }
    // Looks an authority up in a directory, by its name.
    scene.believes_always(&format!(
        "sh -c \"printf 'GET {PAGE} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n' | \
         openssl s_client -quiet -verify_return_error -servername web.test -connect {host}\""
    ));
    if has(daemon, "apt-get") {
        let fetch = format!(
            "sh -c '/usr/lib/apt/apt-helper -qq -o Acquire::Retries=0 download-file {url} /tmp/page && cat /tmp/page'"
        );
        scene.believes_always(&fetch);
    }
    if has(daemon, "python3") {
        let script = format!("import urllib.request; print(urllib.request.urlopen(\\\"{url}\\\").read())");
        scene.believes_always(&format!("/usr/bin/python3 -c \"{script}\""));
    }
}

per_connection!(programs_that_bring_their_own_authorities_believe_the_gate);

fn programs_that_bring_their_own_authorities_believe_the_gate() {
    let scene = Scene::new();
    let (url, daemon) = (&scene.url, &scene.daemon);
    for (module, script) in [
        ("requests", format!("import requests; print(requests.get(\\\"{url}\\\").text)")),
        (
            "aiohttp",
            format!(
                "import aiohttp, asyncio\n\
                 async def main():\n\
                 \u{20} async with aiohttp.ClientSession() as session:\n\
                 \u{20}\u{20} async with session.get(\\\"{url}\\\") as answer: print(await answer.text())\n\
                 asyncio.run(main())"
            ),
        ),
    ] {
        let there =
            daemon.exec("box", json!({ "argv": ["/usr/bin/python3", "-c", format!("import {module}")] }));
        if there["exit_code"] == 0 {
            scene.believes(&format!("/usr/bin/python3 -c \"{script}\""));
        } else {
            skip_part!("this host has no Python with {module} where a sandbox could see it");
        }
    }
    if has(daemon, "node") {
        let script = format!("fetch(\\\"{url}\\\").then(r => r.text()).then(t => console.log(t))");
        scene.believes(&format!("node -e \"{script}\""));
    }
}

per_connection!(a_client_in_java_believes_the_gate);

fn a_client_in_java_believes_the_gate() {
    let scene = Scene::new();
    require!(needs(&scene.daemon, "javac"));
    let directory = tempfile::tempdir().unwrap();
    let compiled = finish(Command::new("javac").arg("-d").arg(directory.path()).arg(source("Client.java")));
    assert!(compiled.status.success(), "{compiled:?}");
    let class = directory.path().join("Client.class");
    scene.bring(&class, "Client.class");
    // Nothing is worth being compiled for one page.
    let ask = format!("java -XX:TieredStopAtLevel=1 -cp . Client {}", scene.url);
    scene.believes_always(&ask);
    // What was there is there still, and the seal of the store holds.
    let list = "keytool -list -cacerts -storepass changeit | grep -c 'trustedCertEntry'";
    let count = |sandbox| -> usize { scene.daemon.shell(sandbox, list).trim().parse().unwrap() };
    assert_eq!(count("box"), count("closed") + 1);
    // Where the image has no store for it, Java is told of one.
    let bare = json!({ "command": "rm -r /etc/ssl/certs/java", "user": "root" });
    assert_eq!(scene.daemon.exec("bare", bare)["exit_code"], 0);
    scene.open("bare");
    scene.daemon.succeeds(&["cp", class.to_str().unwrap(), "bare:Client.class"]);
    assert_eq!(scene.daemon.shell("bare", &ask), TOLD);
}

per_connection!(what_root_of_a_sandbox_put_in_place_of_its_authorities_stays);

fn what_root_of_a_sandbox_put_in_place_of_its_authorities_stays() {
    let scene = Scene::new();
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    // A link is not followed, and in the place of a directory nothing is put.
    for (sandbox, change, now) in [("linked", "ln -s /tmp/mine", "test -f"), ("taken", "mkdir", "test -d")] {
        let change = format!("echo mine > /tmp/mine && rm {bundle} && {change} {bundle}");
        let changed = scene.daemon.exec(sandbox, json!({ "command": change, "user": "root" }));
        assert_eq!(changed["exit_code"], 0, "{changed}");
        scene.open(sandbox);
        let told = scene.daemon.shell(sandbox, &format!("curl -sS -m 60 {}", scene.url));
        assert_eq!(told, TOLD, "{sandbox}");
        let look = format!("cat /tmp/mine; {now} {bundle} && echo as it should be");
        assert_eq!(scene.daemon.shell(sandbox, &look), "mine\nas it should be\n", "{sandbox}");
    }
}

per_connection!(a_client_in_go_believes_the_gate);

fn a_client_in_go_believes_the_gate() {
    let scene = Scene::new();
    let client = require!(go_client());
    scene.bring(&client.program, "client");
    scene.believes_always(&format!("./client {}", scene.url));
}

/// A test program is a client in Rust as good as any, and is there: a copy of it is started in a sandbox,
/// with the page it is to ask for.
#[test]
fn a_client_in_rust_believes_the_gate() {
    const WISH: &str = "ISLE_TEST_ASKS_FOR";
    if let Ok(host) = std::env::var(WISH) {
        println!("{}", ask_in_rust(&host));
        return;
    }
    let scene = Scene::new();
    let host = scene.url.trim_start_matches("https://").trim_end_matches(PAGE);
    scene.bring(&std::env::current_exe().unwrap(), "client");
    let test = "clients_opened::a_client_in_rust_believes_the_gate";
    scene.believes_always(&format!("env {WISH}={host} ./client --exact --nocapture {test}"));
}

/// As clients do that ask the system whom it believes.
fn ask_in_rust(host: &str) -> String {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("web.test").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(host).unwrap());
    write!(stream, "GET {PAGE} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate/clients").join(name)
}

/// A program that was compiled for this test.
struct Compiled {
    program: PathBuf,
    /// Where it is, unless that is kept for the next time.
    _directory: Option<tempfile::TempDir>,
}

/// Compiled once, and again when its source has changed; an ordinary user who may not write there has it
/// for one time only.
fn go_client() -> Result<Compiled, Missing> {
    let source = source("client.go");
    let text = std::fs::read(&source).unwrap();
    let mut sum = DefaultHasher::new();
    sum.write(&text);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("go-client-{:016x}", sum.finish()));
    if kept.exists() {
        return Ok(Compiled { program: kept, _directory: None });
    }
    if Command::new("go").arg("version").output().is_err() {
        return Err(Missing::on_host("this host has no Go"));
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source).current_dir(directory.path());
    build.env("GO111MODULE", "off").env("GOCACHE", directory.path().join("cache"));
    build.env("GOPATH", directory.path().join("path")).env("HOME", directory.path());
    let built = finish(&mut build);
    assert!(built.status.success(), "{built:?}");
    // Whole or not at all: others may look for it.
    let beside = kept.with_extension(std::process::id().to_string());
    if std::fs::copy(&program, &beside).and_then(|_| std::fs::rename(&beside, &kept)).is_ok() {
        return Ok(Compiled { program: kept, _directory: None });
    }
    Ok(Compiled { program, _directory: Some(directory) })
}
