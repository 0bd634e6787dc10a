//! Real clients, each against a server of this machine under a name of the test's own, without any
//! setting that has to do with a sandbox: package managers, version control over three protocols, a
//! database, a shell on another machine, and the HTTP libraries of two languages over TLS.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::{TestDaemon, finish, per_connection, require, sh, skip_part, until};
use crate::servers::{Serving, allow, free_port, has, needs, start};

/// Grants a port of the name, and the address it leads to.
pub(crate) fn grant(daemon: &TestDaemon, port: u16, protocol: &str) {
    allow(daemon, "box", &[format!("web.test:{port}/{protocol}"), format!("127.0.0.1:{port}")]);
}

/// Fails before the grant, and works with it.
pub(crate) fn only_with_the_grant(daemon: &TestDaemon, command: &str, port: u16, protocol: &str) -> String {
    let denied = daemon.exec("box", json!({ "command": command, "timeout": "60s" }));
    assert_eq!(denied["state"], "failed", "nothing was granted: {denied}");
    grant(daemon, port, protocol);
    let run = daemon.exec("box", json!({ "command": command, "timeout": "120s" }));
    assert_eq!(run["state"], "completed", "{run}");
    run["stdout"].as_str().unwrap().to_owned()
}

pub(crate) const HTTP: &str = "
import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    extensions_map = {'': 'application/octet-stream', '.html': 'text/html', '.json': 'application/json'}
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
port = server.server_port
for name in sys.argv[1:]:
    text = open(name).read().replace('PORT', str(port))
    open(name, 'w').write(text)
open('port.new', 'w').write(str(port)); os.rename('port.new', 'port')
server.serve_forever()";

per_connection!(pip_installs_from_an_index);

fn pip_installs_from_an_index() {
    let daemon = start();
    let wheel = "ls /usr/share/python-wheels/pip-*.whl $(python3 -c 'import ensurepip, os; print(os.path.dirname(ensurepip.__file__))')/_bundled/pip-*.whl 2>/dev/null | head -n 1";
    let wheel = daemon.exec("box", json!({ "command": wheel }))["stdout"].as_str().unwrap().trim().to_owned();
    require!(!wheel.is_empty(), "this host has no pip where a sandbox could see it");
    let directory = tempfile::tempdir().unwrap();
    let make = "
import os, zipfile
os.makedirs('simple/granted')
name = 'granted-1.0-py3-none-any.whl'
with zipfile.ZipFile('simple/granted/' + name, 'w') as wheel:
    wheel.writestr('granted.py', 'word = \"installed\"\\n')
    wheel.writestr('granted-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: granted\\nVersion: 1.0\\n')
    wheel.writestr('granted-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('granted-1.0.dist-info/RECORD', '')
open('simple/granted/index.html', 'w').write(f'<a href=\"{name}\">{name}</a>')";
    let made = finish(Command::new("python3").args(["-c", make]).current_dir(directory.path()));
    assert!(made.status.success(), "{made:?}");
    let (_server, port) = Serving::python(directory.path(), HTTP);
    let install = format!(
        "PYTHONPATH={wheel} python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 \
         --target there --index-url http://web.test:{port}/simple --trusted-host web.test granted && \
         PYTHONPATH=there python3 -c 'import granted; print(granted.word)'"
    );
    assert_eq!(only_with_the_grant(&daemon, &install, port, "http"), "installed\n");
}

per_connection!(npm_installs_from_a_registry);

fn npm_installs_from_a_registry() {
    let daemon = start();
    require!(needs(&daemon, "npm"));
    let directory = tempfile::tempdir().unwrap();
    let described = r#"{"name":"granted","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"granted","version":"1.0.0","dist":{"tarball":"http://web.test:PORT/granted-1.0.0.tgz"}}}}"#;
    std::fs::write(directory.path().join("granted"), described).unwrap();
    sh(
        directory.path(),
        "mkdir package; echo '{\"name\":\"granted\",\"version\":\"1.0.0\"}' > package/package.json\n\
         echo 'module.exports = \"installed\"' > package/index.js; tar czf granted-1.0.0.tgz package",
    );
    let script = HTTP.replace("sys.argv[1:]", "['granted']");
    let (_server, port) = Serving::python(directory.path(), &script);
    let install = format!(
        "npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries 0 --registry http://web.test:{port}/ granted && \
         node -p 'require(\"granted\")'"
    );
    assert_eq!(only_with_the_grant(&daemon, &install, port, "http"), "installed\n");
}

/// A repository with one file, and a bare copy of it.
fn repository(directory: &Path) {
    sh(
        directory,
        "git init -q source; cd source; echo granted > file; git add file\n\
         git -c user.name=a -c user.email=a@b.test commit -qm first; cd ..\n\
         git clone -q --bare source repo.git",
    );
}

per_connection!(git_clones_over_its_own_protocol);

fn git_clones_over_its_own_protocol() {
    let daemon = start();
    let directory = tempfile::tempdir().unwrap();
    repository(directory.path());
    let port = free_port();
    // Not by way of `git`, which would be ended without it.
    let programs = String::from_utf8(finish(Command::new("git").arg("--exec-path")).stdout).unwrap();
    let _server = Serving::start(
        Command::new(Path::new(programs.trim()).join("git-daemon"))
            .args(["--export-all", "--listen=127.0.0.1", "--base-path=."])
            .arg(format!("--port={port}"))
            .current_dir(directory.path())
            // Whoever runs it may not be who made the directory, to git's mind.
            .envs([
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_KEY_0", "safe.directory"),
                ("GIT_CONFIG_VALUE_0", "*"),
            ]),
    );
    until("git listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let clone = format!("git clone -q git://web.test:{port}/repo.git && cat repo/file");
    assert_eq!(only_with_the_grant(&daemon, &clone, port, "tcp"), "granted\n");
}

per_connection!(ssh_opens_a_session_and_git_clones_over_it);

fn ssh_opens_a_session_and_git_clones_over_it() {
    let daemon = start();
    require!(Path::new("/usr/sbin/sshd").exists(), "this host has no sshd");
    require!(needs(&daemon, "ssh"));
    let directory = tempfile::tempdir().unwrap();
    repository(directory.path());
    let port = free_port();
    sh(directory.path(), "ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f key");
    let at = directory.path().display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/key.pub\n\
         StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n"
    );
    std::fs::write(directory.path().join("config"), config).unwrap();
    let _server = Serving::start(
        Command::new("/usr/sbin/sshd").arg("-D").arg("-f").arg(directory.path().join("config")),
    );
    until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    daemon.succeeds(&["cp", &format!("{at}/key"), "box:key"]);
    let user = String::from_utf8(finish(Command::new("id").arg("-un")).stdout).unwrap();
    let user = user.trim();
    let ssh = "ssh -F none -i /workspace/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
    let open = format!("chmod 600 key && {ssh} -p {port} {user}@web.test 'echo in a session'");
    assert_eq!(only_with_the_grant(&daemon, &open, port, "tcp"), "in a session\n");
    let clone = format!(
        "GIT_SSH_COMMAND='{ssh}' git clone -q ssh://{user}@web.test:{port}{at}/repo.git && cat repo/file"
    );
    assert_eq!(daemon.shell("box", &clone), "granted\n");
}

per_connection!(redis_cli_speaks_to_its_server);

fn redis_cli_speaks_to_its_server() {
    let daemon = start();
    require!(needs(&daemon, "redis-cli"));
    let directory = tempfile::tempdir().unwrap();
    // As much of a server as the client needs.
    let script = "
import os, socketserver
kept = {}
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length)); self.rfile.readline()
            if words[0].upper() == b'SET': kept[words[1]] = words[2]; self.wfile.write(b'+OK\\r\\n')
            elif words[0].upper() == b'GET': self.wfile.write(b'$%d\\r\\n%s\\r\\n' % (len(kept[words[1]]), kept[words[1]]))
            else: self.wfile.write(b'+OK\\r\\n')
server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler)
open('port.new', 'w').write(str(server.server_address[1])); os.rename('port.new', 'port')
server.serve_forever()";
    let (_server, port) = Serving::python(directory.path(), script);
    let speak = format!(
        "redis-cli -e -h web.test -p {port} set word granted && redis-cli -e -h web.test -p {port} get word"
    );
    assert_eq!(only_with_the_grant(&daemon, &speak, port, "tcp"), "OK\ngranted\n");
}

const HTTPS: &str = "
import http.server, os, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        length = int(self.headers.get('Content-Length', 0))
        body = b'%d bytes for %s' % (len(self.rfile.read(length)), self.headers['Host'].split(':')[0].encode())
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
open('port.new', 'w').write(str(server.server_port)); os.rename('port.new', 'port')
server.serve_forever()";

per_connection!(http_libraries_of_several_languages_speak_tls_through_a_tls_grant);

fn http_libraries_of_several_languages_speak_tls_through_a_tls_grant() {
    let daemon = start();
    let directory = tempfile::tempdir().unwrap();
    sh(
        directory.path(),
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=web.test -addext subjectAltName=DNS:web.test \
         -keyout key.pem -out cert.pem 2>/dev/null",
    );
    let (_server, port) = Serving::python(directory.path(), HTTPS);
    daemon.succeeds(&["cp", &format!("{}/cert.pem", directory.path().display()), "box:cert.pem"]);
    let url = format!("https://web.test:{port}/");
    let size = 300_000;
    let said = format!("{size} bytes for web.test");
    let curl = format!(
        "head -c {size} /dev/zero | curl -sS -m 60 --cacert cert.pem --data-binary @- -H Expect: {url}"
    );
    assert_eq!(only_with_the_grant(&daemon, &curl, port, "tls"), said);
    let requests = format!(
        "import requests\n\
         with requests.Session() as session:\n\
         \u{20} session.verify = 'cert.pem'\n\
         \u{20} for _ in range(3): answer = session.post('{url}', data=bytes({size}), timeout=60)\n\
         print(answer.text, end='')"
    );
    let aiohttp = format!(
        "import aiohttp, asyncio, ssl\n\
         async def main():\n\
         \u{20} context = ssl.create_default_context(cafile='cert.pem')\n\
         \u{20} async with aiohttp.ClientSession() as session:\n\
         \u{20}\u{20} async def one():\n\
         \u{20}\u{20}\u{20} async with session.post('{url}', data=bytes({size}), ssl=context) as answer: return await answer.text()\n\
         \u{20}\u{20} print((await asyncio.gather(*[one() for _ in range(5)]))[0], end='')\n\
         asyncio.run(main())"
    );
    let urllib = format!(
        "import ssl, urllib.request\n\
         context = ssl.create_default_context(cafile='cert.pem')\n\
         print(urllib.request.urlopen('{url}', bytes({size}), 60, context=context).read().decode(), end='')"
    );
    for (module, script) in [("requests", requests), ("aiohttp", aiohttp), ("urllib", urllib)] {
        let there =
            daemon.exec("box", json!({ "argv": ["/usr/bin/python3", "-c", format!("import {module}")] }));
        if there["exit_code"] != 0 {
            skip_part!("this host has no Python with {module} where a sandbox could see it");
            continue;
        }
        let run =
            daemon.exec("box", json!({ "argv": ["/usr/bin/python3", "-c", script], "timeout": "120s" }));
        assert_eq!(run["stdout"], said, "{module}: {run}");
    }
    if has(&daemon, "node") {
        let fetch = format!(
            "fetch('{url}', {{ method: 'POST', body: new Uint8Array({size}) }}).then(answer => answer.text()).then(text => process.stdout.write(text))"
        );
        let environment = json!({ "NODE_EXTRA_CA_CERTS": "/workspace/cert.pem" });
        let run = daemon
            .exec("box", json!({ "argv": ["node", "-e", fetch], "env": environment, "timeout": "120s" }));
        assert_eq!(run["stdout"], said, "node: {run}");
    }
    // A certificate nobody vouches for is the program's to refuse, and it hears of it.
    let run = daemon.exec("box", json!({ "command": format!("curl -sS -m 60 -d x {url}") }));
    assert_eq!(run["exit_code"], 60, "{run}");
}
