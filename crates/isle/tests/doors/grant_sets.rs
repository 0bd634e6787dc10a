//! Grants by the name of a package client: what that client uses on this host, and nothing a sandbox says.
//! The index, the registry and the repository are this test's own, on loopback, under names that only the
//! daemon under test knows.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::contexts::{has, needs};
use crate::harness::{Missing, TestDaemon, require};
use crate::install::{TARBALL, needs_pip, wheel};
use crate::mcp::Client;

const NAMES: &str = "[network_hosts]\n\"index.test\" = \"127.0.0.1\"\n\"evil.test\" = \"127.0.0.1\"\n";

/// Serves what it was given, by path, and remembers what it was asked for.
#[derive(Clone)]
struct Shelf {
    port: u16,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Shelf {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shelf = Self { port, files: Arc::default(), asked: Arc::default() };
        let serving = shelf.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.answer(stream));
            }
        });
        shelf
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let Some(Ok(first)) = lines.next() else { return };
        let kind = if lines.any(|line| line.as_ref().is_ok_and(String::is_empty) || line.is_err()) {
            "text/html"
        } else {
            return;
        };
        let path = first.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
        self.asked.lock().unwrap().push(path.clone());
        let found = self.files.lock().unwrap().get(&path).cloned();
        let (status, body) = found.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
        let kind = if body.starts_with(b"{") { "application/json" } else { kind };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).ok();
    }

    fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.files.lock().unwrap().insert(path.to_owned(), body.into());
    }

    fn was_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// A daemon whose host gets its packages from the shelf, and a sandbox that has pip.
fn start(shelf: &Shelf, more: &[(&str, &str)]) -> Result<TestDaemon, Missing> {
    let host_has_pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !host_has_pip.is_ok_and(|said| said.status.success()) {
        return Err(Missing::on_host("this host's Python has no pip"));
    }
    let (index, registry) = (
        format!("http://index.test:{}/simple", shelf.port),
        format!("http://index.test:{}/npm/", shelf.port),
    );
    let mut settings = vec![
        ("PIP_INDEX_URL", index.as_str()),
        ("PIP_TRUSTED_HOST", "index.test"),
        ("npm_config_registry", registry.as_str()),
    ];
    settings.extend(more);
    let daemon = TestDaemon::start_configured(NAMES, &settings);
    needs_pip(&daemon)?;
    wheel(&daemon, "box", "isle_demo", "1.0");
    shelf.put(
        "/simple/isle-demo/",
        "<a href=\"isle_demo-1.0-py3-none-any.whl\">isle_demo-1.0-py3-none-any.whl</a>",
    );
    let wheel =
        daemon.http("GET", "/v1/sandboxes/box/files/content?path=isle_demo-1.0-py3-none-any.whl", None);
    shelf.put("/simple/isle-demo/isle_demo-1.0-py3-none-any.whl", wheel.body);
    Ok(daemon)
}

fn install(daemon: &TestDaemon, body: Value) -> Value {
    daemon.post("/v1/sandboxes/box/install", body)
}

fn grants(daemon: &TestDaemon) -> Vec<String> {
    let told = daemon.get("/v1/sandboxes/box/grants");
    told["grants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|grant| grant["grant"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn packages_come_through_the_gate_from_where_this_host_gets_them() {
    let shelf = Shelf::open();
    let daemon = require!(start(&shelf, &[]));
    let wanted = json!({"packages": ["isle-demo"], "manager": "pip", "wait": "100s"});
    // Without leave nothing is reached, and it is said what would help.
    let denied = install(&daemon, wanted.clone());
    assert_eq!(denied["installed"], false, "{denied}");
    assert!(denied["hint"].as_str().unwrap().contains("isle install --allow pip"), "{denied}");
    assert_eq!(shelf.was_asked(), 0, "something got through");
    // What the sandbox says about its index grants nothing: that would be a way to grant itself anything.
    daemon.shell(
        "box",
        &format!("mkdir -p ~/.config/pip; printf '[global]\\nindex-url = http://evil.test:{}/evil\\n' > ~/.config/pip/pip.conf", shelf.port),
    );
    let mut allowed = wanted;
    allowed["allow"] = json!(["pip"]);
    let installed = install(&daemon, allowed.clone());
    assert_eq!(installed["installed"], true, "{installed}");
    assert!(
        shelf.asked.lock().unwrap().iter().all(|path| path.starts_with("/simple/isle-demo/")),
        "{:?}",
        shelf.asked
    );
    assert!(grants(&daemon).is_empty(), "it was for that run alone");
    // By name for a run, and for the sandbox.
    let said = daemon.succeeds(&[
        "exec",
        "box",
        "--allow",
        "pip",
        "--",
        "python3",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "-d",
        "got",
        "isle-demo",
    ]);
    assert!(said.contains("isle_demo-1.0"), "{said}");
    daemon.succeeds(&["allow", "box", "pip"]);
    assert_eq!(
        grants(&daemon),
        [format!("index.test:{}/http", shelf.port), format!("127.0.0.1:{}", shelf.port)]
    );
    daemon.succeeds(&["revoke", "box", &grants(&daemon)[0], &grants(&daemon)[1]]);
    // A one-shot brings what its code needs.
    let once = json!({"code": "import isle_demo; print(isle_demo.version)", "language": "python",
        "packages": ["isle-demo"], "allow": ["pip"], "wait": "100s"});
    let once = daemon.post("/v1/runs", once);
    assert_eq!(once["stdout"], "1.0\n", "{once}");
    // A model asks in vain, and what is no client is a host.
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "environment"]);
    allowed["sandbox"] = json!("box");
    let refused = client.call("install", allowed);
    assert!(refused.to_string().contains("FORBIDDEN"), "{refused}");
    let error = daemon.refused("POST", "/v1/sandboxes/box/grants", Some(&json!({"hosts": ["git"]})));
    assert!(error["message"].as_str().unwrap().contains("repository"), "{error}");
    if !has(&daemon, "npm") {
        return;
    }
    daemon.shell("box", TARBALL);
    let tarball = daemon.http("GET", "/v1/sandboxes/box/files/content?path=isle-demo-1.2.3.tgz", None);
    shelf.put("/npm/isle-demo/-/isle-demo-1.2.3.tgz", tarball.body);
    let address = format!("http://index.test:{}/npm/isle-demo/-/isle-demo-1.2.3.tgz", shelf.port);
    let package = json!({"name": "isle-demo", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": {
        "name": "isle-demo", "version": "1.2.3", "main": "index.js", "bin": {"isle-demo-says": "says.js"}, "dist": {"tarball": address}}}});
    shelf.put("/npm/isle-demo", package.to_string());
    daemon.succeeds(&["install", "box", "isle-demo", "--manager", "npm", "--allow", "npm"]);
    assert_eq!(daemon.shell("box", "isle-demo-says"), "demo runs\n");
    assert!(grants(&daemon).is_empty());
}

#[test]
fn the_configuration_lets_everybody_install_and_nothing_else() {
    let shelf = Shelf::open();
    let daemon = require!(start(&shelf, &[("ISLE_NETWORK_INSTALL", "pip")]));
    let (mut client, _) =
        Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,environment"]);
    let wanted = json!({"sandbox": "box", "packages": ["isle-demo"], "manager": "pip", "wait": "100s"});
    let installed = client.call("install", wanted);
    assert_eq!(installed["structuredContent"]["installed"], true, "{installed}");
    // Another index of the model's choice is not part of it.
    let elsewhere = format!("http://evil.test:{}/evil", shelf.port);
    let other = client.call(
        "install",
        json!({"sandbox": "box", "packages": ["isle-other"], "manager": "pip", "index": elsewhere, "wait": "100s"}),
    );
    assert_eq!(other["structuredContent"]["installed"], false, "{other}");
    assert!(shelf.asked.lock().unwrap().iter().all(|path| path.starts_with("/simple/")), "{:?}", shelf.asked);
    let before = shelf.was_asked();
    let run =
        daemon.exec("box", json!({"command": format!("curl -sS -m 20 http://index.test:{}/", shelf.port)}));
    assert_eq!((&run["state"], shelf.was_asked()), (&json!("failed"), before), "only installing may: {run}");
}

/// All files of a directory, by their path below it.
fn files(directory: &Path, below: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let name = format!("{below}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), &name, found);
        } else {
            found.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
}

#[test]
fn a_repository_is_cloned_through_the_gate_from_its_own_host_alone() {
    let shelf = Shelf::open();
    let daemon = TestDaemon::start_configured(NAMES, &[]);
    require!(needs(&daemon, "git"));
    let directory = tempfile::tempdir().unwrap();
    let script = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x; \
         git init -q -b main made && cd made && echo 1 > a && git add . && git commit -qm first && cd .. && \
         git clone -q --bare made repo.git && git -C repo.git update-server-info";
    let made = Command::new("sh").args(["-c", script]).current_dir(directory.path()).status().unwrap();
    assert!(made.success());
    let mut found = Vec::new();
    files(&directory.path().join("repo.git"), "/repo.git", &mut found);
    for (path, body) in found {
        shelf.put(&path, body);
    }
    let url = format!("http://index.test:{}/repo.git", shelf.port);
    let error =
        daemon.refused("POST", "/v1/sandboxes/box/files/git_clone", Some(&json!({"url": url, "depth": 0})));
    assert_eq!(error["code"], "CLONE_FAILED", "{error}");
    assert!(error["next_steps"].to_string().contains("--allow git"), "{error}");
    assert_eq!(shelf.was_asked(), 0, "something got through");
    daemon.succeeds(&["file", "clone", "box", &url, "--depth", "0", "--allow", "git"]);
    assert_eq!(daemon.shell("box", "cat repo/a"), "1\n");
    assert!(grants(&daemon).is_empty(), "it was for that run alone");
}
