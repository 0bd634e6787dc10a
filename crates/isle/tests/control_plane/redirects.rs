//! A program in a sandbox that answers with redirects and other headers that name a URL, and clients that
//! follow them: `curl -L`, Python's requests, Node's fetch. Whatever it answers, nothing is done with the
//! rights of whoever asked.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::http::{tcp, unix_raw};
use crate::harness::{Missing, TestDaemon, finish, needs_tier, part, per_connection, require};
use crate::support::{JSON, Target, proper, refused};

/// Answers with the status and the header its query asks for: this test chooses, as an attacker would.
pub(crate) const HOSTILE: &str = r#"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit, parse_qs

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *words):
        pass

    def anything(self):
        self.rfile.read(int(self.headers.get('content-length', 0)))
        asked = parse_qs(urlsplit(self.path).query)
        heard = json.dumps({'method': self.command, 'path': self.path,
                            'headers': [[name.lower(), value] for name, value in self.headers.items()]})
        self.send_response(int(asked.get('s', ['200'])[0]))
        for name, value in zip(asked.get('h', []), asked.get('v', [])):
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(heard)))
        self.end_headers()
        self.wfile.write(heard.encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = anything

ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
"#;

const REQUESTS: &str = r#"
import json, sys, requests
work = json.load(sys.stdin)
for url in work['urls']:
    for method in ('post', 'get'):
        try:
            answer = getattr(requests, method)(url, headers=work['headers'], timeout=20)
            print(method, answer.status_code, url)
        except requests.RequestException as error:
            print(method, type(error).__name__, url)
"#;

const FETCH: &str = r#"
const work = JSON.parse(require('fs').readFileSync(0, 'utf8'));
(async () => {
  for (const url of work.urls) for (const method of ['POST', 'GET']) {
    try {
      const answer = await fetch(url, { method, headers: work.headers, signal: AbortSignal.timeout(20000) });
      console.log(method, answer.status, url);
    } catch (error) { console.log(method, String(error.cause ?? error), url); }
  }
})();
"#;

/// Starts the hostile program in `box`.
pub(crate) fn hostile(daemon: &TestDaemon) {
    daemon.exec("box", json!({ "argv": ["python3", "-c", HOSTILE], "wait": "0s" }));
    let waited = daemon.get("/v1/sandboxes/box/ports/8000?wait=60s");
    assert_eq!(waited["listening"], true, "{waited}");
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// What a grant, a run in another sandbox and a new token look like as redirects from below `base`.
fn redirects(base: &str, api: &str) -> Vec<String> {
    let port = api.rsplit(':').next().unwrap();
    let deeds = [
        "sandboxes/box/grants?hosts=evil.test",
        "sandboxes/other/exec?command=touch+pwned",
        "tokens?namespace=evil",
        "shutdown",
    ];
    let mut urls = Vec::new();
    for deed in deeds {
        let inside = deed.strip_prefix("sandboxes/box/");
        let places = [
            format!("../../../../../v1/{deed}"),
            inside.map_or_else(String::new, |inside| format!("../../{inside}")),
            format!("/../../../../../v1/{deed}"),
            format!("/..%2f..%2f..%2f..%2fv1/{deed}"),
            format!("/v1/{deed}"),
            format!("//{api}/v1/{deed}"),
            format!("\\\\{api}\\v1\\{deed}"),
            format!("/\\{api}/v1/{deed}"),
            format!("http://{api}/v1/{deed}"),
            format!("HTTP://{api}/v1/{deed}"),
            format!("http:/{api}/v1/{deed}"),
            format!("http:{api}/v1/{deed}"),
            format!("http://localhost:{port}/v1/{deed}"),
            format!("http://LOCALHOST.:{port}/v1/{deed}"),
            format!("http://2130706433:{port}/v1/{deed}"),
            format!("http://0x7f.1:{port}/v1/{deed}"),
            format!("http://[::ffff:127.0.0.1]:{port}/v1/{deed}"),
            format!("http://user:word@{api}/v1/{deed}"),
            format!("http://localhost:8000@{api}/v1/{deed}"),
            format!("http://{api}\\@localhost:8000/v1/{deed}"),
            format!("\thttp://{api}/v1/{deed}"),
            format!("ht\ttp://{api}/v1/{deed}"),
            format!("/\t/{api}/v1/{deed}"),
            format!("http://isle/v1/{deed}"),
        ];
        for place in places.iter().filter(|place| !place.is_empty()) {
            for status in [307, 302] {
                urls.push(format!("{base}r?s={status}&h=Location&v={}", encoded(place)));
            }
        }
    }
    urls
}

/// What the attacks are after.
fn rights(daemon: &TestDaemon) -> Value {
    let grants = daemon.get("/v1/sandboxes/box/grants")["grants"].clone();
    let tokens = daemon.get("/v1/tokens");
    let other = daemon.shell("other", "ls");
    json!({ "grants": grants, "tokens": tokens, "other": other, "sandboxes": daemon.names() })
}

fn has(program: &str, arguments: &[&str]) -> bool {
    part(needs(program, arguments))
}

fn needs(program: &str, arguments: &[&str]) -> Result<(), Missing> {
    let found = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    let missing = || Missing::on_host(format!("this host has no {program} that can do {arguments:?}"));
    found.then_some(()).ok_or_else(missing)
}

fn run(command: &mut Command, input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lets every client that this host has follow all of them, with these headers.
fn follow(daemon: &TestDaemon, urls: &[String], headers: &Value, before: &Value) {
    let work = json!({ "urls": urls, "headers": headers }).to_string();
    let clients = [
        ("python3", ["-c", REQUESTS], has("python3", &["-c", "import requests"])),
        ("node", ["-e", FETCH], has("node", &["-e", "fetch"])),
    ];
    for (program, arguments, _) in clients.into_iter().filter(|(_, _, there)| *there) {
        let said = run(Command::new(program).args(arguments), &work);
        assert_eq!(said.lines().count(), 2 * urls.len(), "{said}");
        assert_eq!(&rights(daemon), before, "{program} did something:\n{said}");
    }
    if has("curl", &["--version"]) {
        let mut options = String::new();
        for (name, value) in headers.as_object().unwrap() {
            options.push_str(&format!("header = \"{name}: {}\"\n", value.as_str().unwrap()));
        }
        for url in urls {
            options.push_str(&format!("url = \"{url}\"\noutput = /dev/null\n"));
        }
        for method in ["POST", "GET"] {
            let mut command = Command::new("curl");
            command.args([
                "-sS",
                "-L",
                "--globoff",
                "--max-redirs",
                "5",
                "-m",
                "20",
                "-X",
                method,
                "-K",
                "-",
            ]);
            curl(&mut command, &options);
            assert_eq!(&rights(daemon), before, "curl -L -X {method} did something");
        }
    }
}

/// Curl ends with the error of the last URL, if there was one: redirects that cannot be followed.
fn curl(command: &mut Command, options: &str) {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(options.as_bytes()).unwrap();
    child.wait().unwrap();
}

per_connection!(a_redirect_of_a_program_does_nothing_with_the_operators_rights);

fn a_redirect_of_a_program_does_nothing_with_the_operators_rights() {
    let target = Target::start();
    let daemon = &target.daemon;
    require!(needs_tier("container"));
    require!(needs("python3", &["--version"]));
    daemon.shell("other", "true");
    hostile(daemon);
    let before = rights(daemon);
    let (address, bearer) = (&target.address, json!({ "Authorization": format!("Bearer {}", target.token) }));
    // Below the API's own origin, where the redirects would be followed with the operator's token.
    let below = format!("http://{address}/v1/sandboxes/box/ports/8000/");
    follow(daemon, &redirects(&below, address), &bearer, &before);
    // On the Unix socket every redirect is followed into the socket, whatever host it names.
    if has("curl", &["--version"]) {
        let socket = daemon.socket();
        let mut options = String::new();
        for url in redirects("http://isle/v1/sandboxes/box/ports/8000/", address) {
            options.push_str(&format!("url = \"{url}\"\noutput = /dev/null\n"));
        }
        for method in ["POST", "GET"] {
            let mut command = Command::new("curl");
            command.args(["-sS", "-L", "--globoff", "--max-redirs", "5", "-m", "20", "-X", method]);
            command.arg("--unix-socket").arg(&socket).args(["-K", "-"]);
            curl(&mut command, &options);
            assert_eq!(rights(daemon), before, "curl -L -X {method} --unix-socket did something");
        }
    }
    // At the listener for ports, with the ticket, and with the operator's token that some client sends along.
    let minted = daemon.post("/v1/sandboxes/box/ports/8000/url", json!({}));
    let base = format!("http://{}/", minted["address"].as_str().unwrap());
    let headers = json!({
        "Isle-Ticket": minted["ticket"], "Authorization": format!("Bearer {}", target.token),
        "Content-Type": "application/json",
    });
    follow(daemon, &redirects(&base, address), &headers, &before);
    // A redirect that stays is followed, and arrives.
    let line = format!("GET /r?s=307&h=Location&v={}", encoded("../there?x=1"));
    let ticket = format!("Isle-Ticket: {}", minted["ticket"].as_str().unwrap());
    let host = format!("Host: {}", minted["address"].as_str().unwrap());
    let moved = tcp(minted["address"].as_str().unwrap(), &line, &[&host, &ticket], b"");
    assert_eq!((moved.status, moved.header("location")), (307, Some("/there?x=1")));
    let line = format!("POST /r?s=307&h=Location&v={}", encoded(&format!("http://{address}/v1/tokens")));
    let kept = tcp(minted["address"].as_str().unwrap(), &line, &[&host, &ticket], b"");
    refused(&kept, 403, "FORBIDDEN", "a redirect to the API");
    assert_eq!(kept.header("location"), None);
    // What the attacks were after can be had by asking for it.
    let granted = daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": ["evil.test"] }));
    assert_ne!(rights(daemon), before, "{granted}");
    assert!(finish(&mut daemon.isle(&["ls"])).status.success());
}

/// What a program answers with that acts on more than its own answer; asked for one by one.
const NEVER: [(&str, &str); 22] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Credentials", "true"),
    ("Alt-Svc", "h2=\"evil.test:443\""),
    ("Clear-Site-Data", "\"*\""),
    ("Strict-Transport-Security", "max-age=99"),
    ("Public-Key-Pins", "x"),
    ("Report-To", "{}"),
    ("NEL", "{}"),
    ("Reporting-Endpoints", "x=\"https://evil.test\""),
    ("Content-Security-Policy-Report-Only", "report-uri https://evil.test"),
    ("Proxy-Authenticate", "Basic"),
    ("Proxy-Authorization", "x"),
    ("Refresh", "0;url=https://evil.test/"),
    ("Link", "<https://evil.test/>; rel=preload"),
    ("Content-Location", "https://evil.test/"),
    ("SourceMap", "https://evil.test/"),
    ("Service-Worker-Allowed", "https://evil.test/"),
    ("Timing-Allow-Origin", "*"),
    ("X-Accel-Redirect", "internal"),
    ("Isle-Version", "9.9.9"),
    ("Set-Cookie", "isle_ticket=forged; Path=/"),
    ("X-Unknown", "//evil.test"),
];

per_connection!(headers_of_a_program_act_on_nothing_but_its_own_answer);

fn headers_of_a_program_act_on_nothing_but_its_own_answer() {
    let target = Target::start();
    let daemon = &target.daemon;
    require!(needs_tier("container"));
    require!(needs("python3", &["--version"]));
    hostile(daemon);
    let minted = daemon.post("/v1/sandboxes/box/ports/8000/url", json!({}));
    let address = minted["address"].as_str().unwrap();
    let base = minted["base_url"].as_str().unwrap();
    let host = format!("Host: {}", base.trim_start_matches("http://").trim_end_matches('/'));
    let ticket = format!("Isle-Ticket: {}", minted["ticket"].as_str().unwrap());
    let answered = |name: &str, value: &str| {
        let line = format!("GET /r?h={name}&v={}", encoded(value));
        let answer = tcp(address, &line, &[&host, &ticket], b"");
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        answer.header(name).map(str::to_owned)
    };
    for (name, value) in NEVER {
        assert_eq!(answered(name, value), None, "{name}");
    }
    for (name, value, passed) in [
        ("Content-Type", "text/html", "text/html"),
        ("ETag", "\"x\"", "\"x\""),
        ("X-Total-Count", "42", "42"),
        ("Set-Cookie", "own=1; Domain=localhost", "own=1"),
        ("Refresh", "1; url=../next", "1;url=/next"),
        ("Link", "</a.css>; rel=preload", "</a.css>; rel=\"preload\""),
    ] {
        assert_eq!(answered(name, value).as_deref(), Some(passed), "{name}");
    }
}

per_connection!(what_changes_something_is_said_in_json_and_nowhere_else);

/// Every way to change something, as a link, a form or a redirect would say it.
fn what_changes_something_is_said_in_json_and_nowhere_else() {
    let target = Target::start();
    let daemon = &target.daemon;
    daemon.shell("other", "true");
    let deeds = [
        "POST /v1/sandboxes?sandbox=evil",
        "POST /v1/sandboxes/other/exec?command=touch+pwned",
        "POST /v1/sandboxes/other/exec/stream?command=touch+pwned",
        "POST /v1/sandboxes/other/grants?hosts=evil.test",
        "POST /v1/sandboxes/other/reset?wipe=true",
        "POST /v1/tokens?namespace=evil",
        "POST /v1/grants?hosts=evil.test",
        "POST /v1/runs?command=true",
        "DELETE /v1/sandboxes/other?wipe=true",
    ];
    let before = (daemon.get("/v1/tokens"), daemon.get("/v1/sandboxes/other/grants"), daemon.names());
    for line in deeds {
        for headers in [&[JSON][..], &[]] {
            for answer in [target.tcp(line, headers, b""), unix_raw(&daemon.socket(), line, headers, b"")] {
                let status =
                    if headers.is_empty() && line.starts_with("POST") { [400, 415] } else { [400; 2] };
                assert!(status.contains(&answer.status), "{line}: {} {}", answer.status, answer.text());
                assert_eq!(proper(&answer.json()["error"])["code"], "INVALID_ARGUMENT", "{line}");
            }
        }
    }
    // Without arguments nothing is declared either: what a plain form sends.
    for line in [
        "POST /v1/sandboxes/other/reset",
        "POST /v1/sandboxes/other/pause",
        "POST /v1/runs",
        "POST /v1/shutdown",
    ] {
        for kind in
            ["X-None: x", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded"]
        {
            // The daemon is not ended over TCP at all.
            if line != "POST /v1/shutdown" {
                refused(&target.tcp(line, &[kind], b""), 415, "INVALID_ARGUMENT", &format!("{line} {kind}"));
            }
            let answer = unix_raw(&daemon.socket(), line, &[kind], b"");
            refused(&answer, 415, "INVALID_ARGUMENT", &format!("{line} {kind} on the Unix socket"));
        }
    }
    for line in [
        "PUT /v1/sandboxes/other/files/content?path=pwned",
        "PUT /v1/sandboxes/other/files/tree?path=.",
        "POST /v1/sandboxes/other/files/tree?path=.",
        "POST /v1/sandboxes/other/files/prune?path=.",
    ] {
        for kind in ["X-None: x", "Content-Type: text/plain", "Content-Type: multipart/form-data; boundary=x"]
        {
            refused(&target.tcp(line, &[kind], b"x"), 415, "INVALID_ARGUMENT", &format!("{line} {kind}"));
        }
    }
    assert_eq!((daemon.get("/v1/tokens"), daemon.get("/v1/sandboxes/other/grants"), daemon.names()), before);
    assert_eq!(daemon.shell("other", "ls"), "");
    // Said in JSON it is done.
    let kind = "Content-Type: application/json; charset=utf-8";
    assert_eq!(target.tcp("POST /v1/sandboxes/other/reset", &[kind], b"").status, 200);
    assert_eq!(target.tcp("DELETE /v1/sandboxes/other", &[JSON], b"{\"wipe\": true}").status, 200);
    assert!(daemon.names().is_empty());
    target.still_works();
}
