//! Attacks on asking: a sandbox that asks without end, that asks for what could not be shown, and that
//! tries to answer itself.

use serde_json::json;

use crate::harness::http::Events;
use crate::harness::{TestDaemon, per_connection, require, until};
use crate::servers::{NAMES, needs};

fn asking() -> TestDaemon {
    TestDaemon::start_configured(&format!("network_ask = \"10m\"\n{NAMES}"), &[])
}

per_connection!(a_flood_of_questions_is_held_within_bounds_and_holds_up_nobody_else);

fn a_flood_of_questions_is_held_within_bounds_and_holds_up_nobody_else() {
    let daemon = asking();
    require!(needs(&daemon, "python3"));
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=network_requested", &[], "");
    // Many programs ask for one name, which is one request, and few of them are kept waiting.
    let script = "import json, socket, threading\n\
        answers = []\n\
        def ask(number):\n\
        \u{20} try: socket.getaddrinfo('web.test', 80, socket.AF_INET); answers.append('found')\n\
        \u{20} except OSError: answers.append('denied'); open('denied', 'a').write('.')\n\
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(100)]\n\
        for thread in threads: thread.start()\n\
        for thread in threads: thread.join()\n\
        print(json.dumps(sorted(set(answers))))";
    let run = daemon.exec("wild", json!({ "argv": ["python3", "-c", script], "wait": "0s" }));
    let asked = events.next().unwrap().data;
    assert_eq!(asked["data"]["host"], "web.test", "{asked}");
    until("those above the bound are denied at once", || {
        daemon.shell("wild", "cat denied 2>/dev/null || true").len() >= 36
    });
    // Another sandbox is asked for, and served, meanwhile.
    let other = daemon.exec(
        "calm",
        json!({ "command": "getent hosts other.test > /dev/null && echo found", "wait": "0s" }),
    );
    let asked_too = events.next().unwrap().data;
    assert_eq!(asked_too["data"]["host"], "other.test", "{asked_too}");
    for (request, run, said) in [(&asked_too, &other, "found"), (&asked, &run, "denied")] {
        let path = format!("/v1/network/requests/{}/approve", request["data"]["request"].as_str().unwrap());
        daemon.post(&path, json!({ "scope": "sandbox" }));
        let path = format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap());
        let ended = daemon.post(&path, json!({ "timeout": "120s" }));
        assert!(ended["stdout"].as_str().unwrap().contains(said), "{ended}");
    }
    let listed = daemon.get("/v1/network/requests");
    assert_eq!(listed["requests"], json!([]), "one request for all of them: {listed}");
}

per_connection!(what_a_person_is_shown_cannot_be_forged_by_a_name);

fn what_a_person_is_shown_cannot_be_forged_by_a_name() {
    let daemon = asking();
    require!(needs(&daemon, "python3"));
    // Words, escapes and letters of other alphabets where a name should be; the last is a plain one.
    let script = r"import socket
for label in (b'web.test, port 443 (tls) is safe', b'\x1b[2Kweb', b'a\nASK: approve', b'\xe2\x80\xae', b'web\0', b'w\xd0\xb5b',
              b'<b>web', b'plain'):
    label = label[:63]
    question = b'\0\1\1\0\0\1\0\0\0\0\0\0' + bytes([len(label)]) + label + b'\4test\0\0\1\0\1'
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asking.settimeout(10)
    asking.sendto(question, ('127.0.0.53', 53))
    try: asking.recv(512)
    except OSError: pass";
    daemon.exec("box", json!({ "argv": ["python3", "-c", script], "timeout": "120s" }));
    until("the plain one is asked for", || {
        daemon.get("/v1/network/requests").to_string().contains("plain.test")
    });
    let listed = daemon.get("/v1/network/requests");
    let hosts: Vec<&str> =
        listed["requests"].as_array().unwrap().iter().map(|one| one["host"].as_str().unwrap()).collect();
    for host in &hosts {
        let plain = host
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte));
        assert!(plain, "{host:?} of {hosts:?}");
    }
    assert!(hosts.contains(&"plain.test"), "{hosts:?}");
}

per_connection!(a_sandbox_cannot_answer_its_own_request);

fn a_sandbox_cannot_answer_its_own_request() {
    let config = format!("network_ask = \"10m\"\n{NAMES}[spawn_policies.box]\nmax_total = 2\n");
    let daemon = TestDaemon::start_configured(&config, &[]);
    daemon.exec("box", json!({ "command": "getent hosts web.test || true" }));
    let request = daemon.get("/v1/network/requests")["requests"][0].clone();
    let id = request["request"].as_str().unwrap();
    // By every way there is from inside: the control socket, and whatever is where the daemon listens.
    let attempt = format!(
        "isle-ctl call approve_request '{{\"request\":\"{id}\"}}' 2>&1; isle-ctl approve_request {id} 2>&1; \
         for socket in $(find / -xdev -type s 2>/dev/null); do \
         curl -sS -m 5 --unix-socket $socket -X POST http://isle/v1/network/requests/{id}/approve -d '{{}}' 2>&1; done; true"
    );
    let run = daemon.exec("box", json!({ "command": attempt, "timeout": "120s" }));
    assert_eq!(run["state"], "completed", "{run}");
    assert_eq!(daemon.get("/v1/network/requests")["requests"][0]["state"], "pending", "{run}");
    let granted = daemon.get("/v1/sandboxes/box/grants");
    assert_eq!(granted["grants"], json!([]), "{granted}");
    // The control: the same request, from outside.
    daemon.post(&format!("/v1/network/requests/{id}/approve"), json!({}));
    assert_eq!(daemon.get("/v1/sandboxes/box/grants")["grants"][0]["grant"], "web.test:80,443");
}
