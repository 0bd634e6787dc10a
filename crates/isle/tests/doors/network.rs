//! The network of a sandbox through every door: nothing by default, what is granted with any program,
//! everything else denied at once and with words. Servers are this test's own, on loopback, under names
//! that only the daemon under test knows; loopback itself has to be granted by address.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::contexts::{has, needs};
use crate::harness::{TestDaemon, finish, per_connection, processes_with, require, until};
use crate::mcp::Client;
use crate::metrics::value;

pub(crate) const NAMES: &str =
    "[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n";

/// A server on loopback that answers each connection in a thread of its own.
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: Arc<AtomicUsize>,
}

impl Server {
    fn start(answer: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || answer(stream));
            }
        });
        Self { port, heard }
    }

    /// Answers every request with its path.
    pub(crate) fn http() -> Self {
        Self::start(|mut stream| {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else { return };
            for line in lines {
                if !line.is_ok_and(|line| !line.is_empty()) {
                    break;
                }
            }
            let body = format!("you asked for {}", first.split(' ').nth(1).unwrap_or("?"));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).ok();
        })
    }

    /// Gives back what it hears.
    pub(crate) fn echo() -> Self {
        Self::start(|mut stream| {
            let mut from = stream.try_clone().unwrap();
            std::io::copy(&mut from, &mut stream).ok();
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }
}

fn start() -> TestDaemon {
    TestDaemon::start_configured(NAMES, &[])
}

pub(crate) fn allow(daemon: &TestDaemon, sandbox: &str, hosts: &[String]) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/grants"), json!({ "hosts": hosts }))
}

fn net(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/sandboxes/{sandbox}/net"))
}

fn curl(port: u16) -> String {
    format!("curl -sS -m 20 http://web.test:{port}/page")
}

per_connection!(a_granted_name_is_reached_by_any_program_and_nothing_else_is);

fn a_granted_name_is_reached_by_any_program_and_nothing_else_is() {
    let (daemon, http, echo) = (start(), Server::http(), Server::echo());
    let (web, raw) = (http.port, echo.port);
    // Nothing by default.
    let denied = daemon.exec("box", json!({ "command": curl(web) }));
    assert_eq!(denied["state"], "failed", "{denied}");
    let granted = allow(
        &daemon,
        "box",
        &[format!("WEB.test.:{web}/http"), format!("web.test:{raw}"), format!("127.0.0.1:{web},{raw}")],
    );
    assert_eq!(granted["grants"][0]["grant"], format!("web.test:{web}/http"), "{granted}");
    assert_eq!(daemon.shell("box", &curl(web)), "you asked for /page");
    let bash = format!("exec 3<>/dev/tcp/web.test/{raw}; echo plain >&3; read -r line <&3; echo $line");
    let bash = daemon.exec("box", json!({ "argv": ["bash", "-c", bash] }));
    assert_eq!(bash["stdout"], "plain\n", "{bash}");
    if has(&daemon, "python3") {
        let python = format!(
            "import socket, urllib.request\n\
             print(urllib.request.urlopen('http://web.test:{web}/py').read().decode())\n\
             s = socket.create_connection(('web.test', {raw}), 20)\n\
             data = bytes(range(256)) * 4000\n\
             import threading; threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1))).start()\n\
             back = b''\n\
             while chunk := s.recv(65536): back += chunk\n\
             print(back == data)"
        );
        let python = daemon.exec("box", json!({ "argv": ["python3", "-c", python] }));
        assert_eq!(python["stdout"], "you asked for /py\nTrue\n", "{python}");
    }
    if has(&daemon, "node") {
        let node =
            format!("fetch('http://web.test:{web}/node').then(r => r.text()).then(t => console.log(t))");
        let node = daemon.exec("box", json!({ "argv": ["node", "-e", node] }));
        assert_eq!(node["stdout"], "you asked for /node\n", "{node}");
    }
    let before = (http.connections(), echo.connections());
    for host in [
        "other.test",
        "sub.web.test",
        "web.test.other.test",
        "127.0.0.1",
        "0.0.0.0",
        "localhost",
        "198.18.9.9",
    ] {
        let run = daemon.exec("box", json!({ "command": format!("curl -sS -m 20 http://{host}:{web}/") }));
        assert_eq!(run["state"], "failed", "{host}: {run}");
    }
    // A granted name, another port.
    let run = daemon.exec("box", json!({ "command": "curl -sS -m 20 http://web.test:1/" }));
    assert_eq!(run["exit_code"], 7, "{run}");
    assert_eq!((http.connections(), echo.connections()), before, "something got through");
    let told = net(&daemon, "box");
    assert!(told["denied"].as_u64().unwrap() >= 3 && told["connections"].as_u64().unwrap() >= 2, "{told}");
    assert!(told["sent_bytes"].as_u64().unwrap() > 100, "{told}");
}

per_connection!(a_denial_says_what_was_denied_why_and_what_to_do);

fn a_denial_says_what_was_denied_why_and_what_to_do() {
    let (daemon, http) = (start(), Server::http());
    let port = http.port;
    allow(&daemon, "box", &[format!("web.test:{port}/http")]);
    // A name that leads to an address nobody granted: told to programs that speak HTTP, in HTTP.
    let run = daemon.exec("box", json!({ "command": format!("{} -i", curl(port)) }));
    let said = run["stdout"].as_str().unwrap();
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("reason: forbidden_address"), "{run}");
    assert!(said.contains(&format!("grant of 127.0.0.1:{port}")), "{run}");
    let violation = &run["violations"][0];
    assert_eq!(violation["what"], format!("network: web.test:{port}"), "{run}");
    assert!(
        violation["remedy"].as_str().unwrap().contains(&format!("isle allow box 127.0.0.1:{port}")),
        "{run}"
    );
    allow(&daemon, "box", &[format!("127.0.0.1:{port}")]);
    for (extra, reason) in
        [("-H 'Host: other.test'", "wrong_host_header"), ("-H 'Host:'", "wrong_host_header")]
    {
        let run = daemon.exec("box", json!({ "command": format!("{} {extra}", curl(port)) }));
        assert!(run["stdout"].as_str().unwrap().contains(reason), "{extra}: {run}");
    }
    // A name nobody granted does not exist, at once.
    let run = daemon.exec("box", json!({ "command": "curl -sS -m 20 http://secret-data.evil.example/" }));
    assert_eq!(run["exit_code"], 6, "{run}");
    assert_eq!(run["violations"][0]["what"], "network: secret-data.evil.example", "{run}");
    let log = net(&daemon, "box")["log"].as_array().unwrap().clone();
    let last = log.last().unwrap();
    assert_eq!((&last["outcome"], &last["reason"]), (&json!("denied"), &json!("not_granted")), "{last}");
    assert_eq!(http.connections(), 0);
    // The next run is not told of it.
    let run = daemon.exec("box", json!({ "command": curl(port) }));
    assert!(run["violations"].is_null(), "{run}");
}

per_connection!(what_a_run_was_granted_ends_with_it);

fn what_a_run_was_granted_ends_with_it() {
    let (daemon, http) = (start(), Server::http());
    let port = http.port;
    let (name, address) = (format!("web.test:{port}/http"), format!("127.0.0.1:{port}"));
    let url = format!("http://web.test:{port}/once");
    let said = daemon.succeeds(&["run", "--allow", &name, "--allow", &address, "--", "curl", "-sS", &url]);
    assert_eq!(said, "you asked for /once");
    let said =
        daemon.succeeds(&["exec", "box", "--allow", &name, "--allow", &address, "--", "curl", "-sS", &url]);
    assert_eq!(said, "you asked for /once");
    let again = finish(&mut daemon.isle(&["exec", "box", "--", "curl", "-sS", &url]));
    assert_eq!(again.status.code(), Some(6), "{again:?}");
    assert!(daemon.get("/v1/sandboxes/box/grants")["grants"].as_array().unwrap().is_empty());
    let run = daemon.post("/v1/runs", json!({ "argv": ["curl", "-sS", url], "allow": [name, address] }));
    assert_eq!(run["stdout"], "you asked for /once", "{run}");
    assert_eq!(http.connections(), 3);
}

per_connection!(taking_a_grant_back_cuts_what_is_open);

fn taking_a_grant_back_cuts_what_is_open() {
    let (daemon, echo) = (start(), Server::echo());
    let port = echo.port;
    allow(
        &daemon,
        "box",
        &[format!("web.test:{port}"), format!("other.test:{port}"), format!("127.0.0.1:{port}")],
    );
    let script = format!(
        "hold() {{ exec 3<>/dev/tcp/$1/{port}; echo hello >&3; read -r line <&3; echo $line > $1.open\n\
         if read -r line <&3; then echo $line > $1.ended; else echo cut > $1.ended; fi; }}\n\
         hold web.test & hold other.test & wait"
    );
    let job = daemon.exec("box", json!({ "argv": ["bash", "-c", script], "wait": "0s" }));
    let there =
        |file: &str| daemon.shell("box", &format!("cat {file} 2>/dev/null || true")).trim().to_owned();
    until("both are connected", || there("web.test.open") == "hello" && there("other.test.open") == "hello");
    let grants = daemon.get("/v1/sandboxes/box/grants");
    assert_eq!(grants["grants"][0]["open"], 1, "{grants}");
    daemon.succeeds(&["revoke", "box", &format!("web.test:{port}")]);
    until("the connection is cut", || there("web.test.ended") == "cut");
    assert_eq!(there("other.test.ended"), "", "the other grant holds");
    let error =
        daemon.refused("POST", "/v1/sandboxes/box/grants/revoke", Some(&json!({ "hosts": ["web.test"] })));
    assert_eq!(error["code"], "GRANT_NOT_FOUND", "{error}");
    daemon.post(&format!("/v1/runs/{}/kill", job["run_id"].as_str().unwrap()), json!({}));
}

per_connection!(grants_outlive_the_daemon_and_a_reset_and_end_with_the_sandbox);

fn grants_outlive_the_daemon_and_a_reset_and_end_with_the_sandbox() {
    let (mut daemon, http) = (start(), Server::http());
    let port = http.port;
    allow(&daemon, "box", &[format!("web.test:{port}/http"), format!("127.0.0.1:{port}")]);
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    daemon.succeeds(&["reset", "box"]);
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    daemon.succeeds(&["rm", "box"]);
    let run = daemon.exec("box", json!({ "command": curl(port) }));
    assert_eq!(run["exit_code"], 6, "{run}");
    assert!(daemon.get("/v1/sandboxes/box/grants")["grants"].as_array().unwrap().is_empty());
}

per_connection!(without_a_daemon_nothing_goes);

fn without_a_daemon_nothing_goes() {
    let (mut daemon, echo) = (start(), Server::echo());
    let port = echo.port;
    allow(&daemon, "box", &[format!("web.test:{port}"), format!("127.0.0.1:{port}")]);
    let script = format!(
        "exec 3<>/dev/tcp/web.test/{port}; echo hello >&3; read -r line <&3; echo $line > open\n\
         read -r line <&3 || true\n\
         if (exec 4<>/dev/tcp/web.test/{port}) 2>/dev/null; then echo reached; else echo denied; fi > after"
    );
    let marker = format!("without-a-daemon-{port}");
    daemon.exec("box", json!({ "argv": ["bash", "-c", script, marker], "wait": "0s" }));
    until("it is connected", || daemon.shell("box", "cat open 2>/dev/null || true") == "hello\n");
    daemon.kill();
    // The sandbox goes on, and what runs in it finds its connection cut and no other to be had.
    until("it has tried again", || processes_with(&marker).is_empty());
    daemon.launch();
    assert_eq!(daemon.shell("box", "cat after"), "denied\n");
    assert_eq!(echo.connections(), 1);
    assert_eq!(daemon.shell("box", "getent hosts web.test | cut -c1-7"), "198.18.\n", "and now again");
}

per_connection!(limits_of_a_grant_hold);

fn limits_of_a_grant_hold() {
    let (daemon, echo) = (start(), Server::echo());
    let port = echo.port;
    allow(&daemon, "box", &[format!("127.0.0.1:{port}")]);
    let limited = json!({ "hosts": [format!("web.test:{port}")], "total": "4K" });
    daemon.post("/v1/sandboxes/box/grants", limited);
    let script =
        format!("exec 3<>/dev/tcp/web.test/{port}; head -c 8192 /dev/zero >&3; head -c 8192 <&3 | wc -c");
    let run = daemon.exec("box", json!({ "argv": ["bash", "-c", script] }));
    let count: u64 = run["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(count < 4096, "{run}");
    assert!(run["violations"][0]["remedy"].as_str().unwrap().contains("bytes_used_up"), "{run}");
    // Who speaks HTTP is told in HTTP, also when nothing was left from the beginning.
    let web = Server::http().port;
    let limited = json!({ "hosts": [format!("web.test:{web}/http")], "total": "64" });
    daemon.post("/v1/sandboxes/box/grants", limited);
    allow(&daemon, "box", &[format!("127.0.0.1:{web}")]);
    daemon.exec("box", json!({ "command": curl(web) }));
    let told = daemon.shell("box", &format!("{} -w ' %{{http_code}}'", curl(web)));
    assert!(told.contains("used up") && told.ends_with(" 403"), "{told}");
    daemon.post(
        "/v1/sandboxes/box/grants",
        json!({ "hosts": [format!("other.test:{port}")], "lifetime": "1s" }),
    );
    until("it has expired", || {
        let grants = daemon.get("/v1/sandboxes/box/grants");
        !grants.to_string().contains("other.test")
    });
}

per_connection!(what_cannot_be_granted_is_refused_and_changes_nothing);

fn what_cannot_be_granted_is_refused_and_changes_nothing() {
    let daemon = start();
    for host in
        ["*", "*.com", "ftp://web.test", "user@web.test", "web.test:0", "127.1:80", "a b", "web.test/udp"]
    {
        let hosts = json!({ "hosts": ["other.test", host] });
        let error = daemon.refused("POST", "/v1/sandboxes/box/grants", Some(&hosts));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{host}: {error}");
    }
    assert!(!daemon.names().contains(&"box".to_owned()), "it was made all the same");
    let error = daemon.refused("POST", "/v1/sandboxes/box/grants", Some(&json!({ "hosts": [] })));
    assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    let error = daemon.refused("GET", "/v1/sandboxes/nobody/net", None);
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND", "{error}");
}

per_connection!(the_configuration_grants_to_every_sandbox);

fn the_configuration_grants_to_every_sandbox() {
    let http = Server::http();
    let port = http.port;
    let config = format!("network_allow = [\"web.test:{port}/http\", \"127.0.0.1:{port}\"]\n{NAMES}");
    let daemon = TestDaemon::start_configured(&config, &[]);
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    let once = daemon.post("/v1/runs", json!({ "command": curl(port) }));
    assert_eq!(once["stdout"], "you asked for /page", "{once}");
    let grants = daemon.get("/v1/sandboxes/box/grants");
    assert_eq!(grants["grants"][0]["source"], "config", "{grants}");
}

per_connection!(the_network_is_reached_over_mcp_when_its_tools_are_shown);

fn the_network_is_reached_over_mcp_when_its_tools_are_shown() {
    let (daemon, http) = (start(), Server::http());
    let port = http.port;
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,network"]);
    let hosts = [format!("web.test:{port}/http"), format!("127.0.0.1:{port}")];
    // A model looks and takes back; it grants nothing.
    let refused = client.request("tools/call", json!({ "name": "allow", "arguments": { "hosts": hosts } }));
    assert!(refused["error"].is_object(), "{refused}");
    allow(&daemon, "box", &hosts);
    let answer = client.call("grants", json!({ "sandbox": "box" }));
    assert_eq!(answer["structuredContent"]["grants"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    // It is counted when it has ended, which is after its client has.
    until("the connection is counted", || {
        client.call("net", json!({ "sandbox": "box" }))["structuredContent"]["connections"] == 1
    });
}

per_connection!(what_goes_through_the_gate_is_counted);

fn what_goes_through_the_gate_is_counted() {
    let (daemon, http) = (start(), Server::http());
    let port = http.port;
    allow(&daemon, "box", &[format!("web.test:{port},1/tcp"), format!("127.0.0.1:{port},1")]);
    assert_eq!(daemon.shell("box", &curl(port)), "you asked for /page");
    daemon.exec(
        "box",
        json!({ "command": "curl -sS -m 20 http://nobody.test/; curl -sS -m 20 http://web.test:1/" }),
    );
    until("nothing is open", || {
        value(&daemon.get("/v1/stats"), "isle_net_connections_open", &[]).abs() < 0.5
    });
    let stats = daemon.get("/v1/stats");
    let total = |name: &str, labels: &[(&str, &str)]| value(&stats, name, labels);
    assert_eq!(total("isle_net_connections_total", &[]), 1.0, "{stats}");
    assert_eq!(total("isle_net_failed_total", &[]), 1.0, "{stats}");
    assert!(total("isle_net_denied_total", &[("reason", "not_granted")]) >= 1.0, "{stats}");
    assert!(total("isle_net_bytes_total", &[("direction", "sent")]) > 50.0, "{stats}");
    assert!(total("isle_net_bytes_total", &[("direction", "received")]) > 50.0, "{stats}");
    assert!(total("isle_net_dial_duration_seconds", &[]) > 0.0, "{stats}");
    let grants = daemon.get("/v1/sandboxes/box/grants");
    let grant = &grants["grants"][0];
    assert!(grant["connections"] == 1 && grant["latency_ms"].as_f64().unwrap() > 0.0, "{grants}");
    assert!(grants["grants"][1]["latency_ms"].is_null(), "never used: {grants}");
    let told = daemon.succeeds(&["net", "box"]);
    assert!(
        told.contains("average connect time: ") && net(&daemon, "box")["latency_ms"].as_f64().unwrap() > 0.0,
        "{told}"
    );
    // What is gone stays counted.
    daemon.succeeds(&["rm", "box"]);
    assert_eq!(value(&daemon.get("/v1/stats"), "isle_net_connections_total", &[]), 1.0);
}

per_connection!(a_port_of_a_sandbox_is_reached_from_this_host);

fn a_port_of_a_sandbox_is_reached_from_this_host() {
    let mut daemon = start();
    require!(needs(&daemon, "python3"));
    daemon.exec("box", json!({ "command": "mkdir -p www && echo inside > www/page" }));
    // Nothing listens yet, which is said and no error.
    let early = daemon.post("/v1/sandboxes/box/ports", json!({ "port": 8000, "host_port": 0 }));
    assert_eq!((&early["listening"], early["warning"].is_string()), (&json!(false), true), "{early}");
    let waited = daemon.get("/v1/sandboxes/box/ports/8000?wait=0s");
    assert_eq!(waited["listening"], false, "{waited}");
    let serve = "cd www && exec python3 -m http.server 8000";
    daemon.exec("box", json!({ "command": serve, "wait": "0s" }));
    let waited = daemon.get("/v1/sandboxes/box/ports/8000?wait=60s");
    assert_eq!(waited["listening"], true, "{waited}");
    let host_port = u16::try_from(early["host_port"].as_u64().unwrap()).unwrap();
    let fetch = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", host_port))?;
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let said = fetch().unwrap();
                assert!(said.ends_with("inside\n"), "{said}");
            });
        }
    });
    let taken = json!({ "port": 8001, "host_port": host_port });
    let error = daemon.refused("POST", "/v1/sandboxes/box/ports", Some(&taken));
    assert!(error["code"] == "PORT_TAKEN" && error["message"].as_str().unwrap().contains("box"), "{error}");
    let shown = daemon.succeeds(&["expose", "box", "8000"]);
    assert_eq!(shown, format!("127.0.0.1:{host_port}\n"), "asked again, it is the same");
    daemon.succeeds(&["unexpose", "box", "8000"]);
    until("the port is free", || TcpStream::connect(("127.0.0.1", host_port)).is_err());
    let error = daemon.refused("DELETE", "/v1/sandboxes/box/ports/8000", None);
    assert_eq!(error["code"], "PORT_NOT_FOUND", "{error}");
    let again = daemon.post("/v1/sandboxes/box/ports", json!({ "port": 8000, "host_port": 0 }));
    let host_port = u16::try_from(again["host_port"].as_u64().unwrap()).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", host_port)).is_ok());
    daemon.succeeds(&["rm", "box"]);
    until("the port went with its sandbox", || TcpStream::connect(("127.0.0.1", host_port)).is_err());
    daemon.terminate();
    daemon.launch();
}
