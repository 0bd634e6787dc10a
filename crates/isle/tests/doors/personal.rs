//! Personal data is masked in everything that comes out of a sandbox, where the operator wishes it, and
//! nowhere else.

use serde_json::{Value, json};

use crate::contexts::{code, has};
use crate::harness::http::Events;
use crate::harness::{TestDaemon, until};

const MAIL: &str = "jane.doe@example.com";
const CARD: &str = "4111 1111 1111 1111";
const PHONE: &str = "+49 30 12345678";

fn masking() -> TestDaemon {
    let config = "mask_pii = [\"email\", \"card\", \"ip\"]\n[profiles.shop]\nmask_pii = [\"phone\"]\n\
                  [spawn_policies.shop]\nmax_total = 2\n";
    TestDaemon::start_configured(config, &[])
}

#[test]
fn personal_data_is_masked_in_all_that_comes_out() {
    let daemon = masking();
    let clean = |what: &str, text: &str| {
        assert!(!text.contains(MAIL) && !text.contains("jane.doe") && !text.contains(CARD), "{what}: {text}");
    };
    let both = format!("{MAIL}, {CARD}");
    let run = daemon.exec("box", json!({"command": format!("echo 'a {both} b'; echo '{MAIL}' >&2")}));
    assert_eq!(
        (&run["stdout"], &run["stderr"]),
        (&json!("a [email], [card] b\n"), &json!("[email]\n")),
        "{run}"
    );
    // In pieces of one byte; other numbers as they are.
    let slowly = format!(
        "printf '{both}; 1700000000000 {PHONE} 4111 1111 1111 1112' | tee file | dd bs=1 2>/dev/null"
    );
    let run = daemon.exec("box", json!({"command": slowly}));
    assert_eq!(run["stdout"], format!("[email], [card]; 1700000000000 {PHONE} 4111 1111 1111 1112"), "{run}");
    let id = run["run_id"].as_str().unwrap();
    until("its events are written", || daemon.get("/v1/events/history?limit=500").to_string().contains(id));
    for path in [
        "/v1/runs?limit=100",
        "/v1/audit?limit=100",
        "/v1/events/history?limit=500",
        &format!("/v1/runs/{id}/logs"),
    ] {
        let told = daemon.get(path).to_string();
        clean(path, &told);
        assert!(path.starts_with("/v1/audit") || told.contains("[email]"), "{path}: {told}");
    }
    // Streams, a terminal, a sandbox for one command.
    assert_eq!(daemon.succeeds(&["exec", "box", "--", "echo", MAIL]), "[email]\n");
    assert_eq!(daemon.succeeds(&["run", "--", "echo", CARD]), "[card]\n");
    let output = daemon.succeeds(&["exec", "box", "--tty", "--", "echo", MAIL]);
    assert!(output.contains("[email]"), "{output}");
    clean("terminal", &output);
    let job =
        daemon.post("/v1/sandboxes/box/jobs", json!({"name": "speaker", "command": format!("echo {MAIL}")}));
    let path = format!("GET /v1/runs/{}/events", job["run_id"].as_str().unwrap());
    let heard: Vec<String> = Events::open(&daemon.socket(), &path, &[], "")
        .rest()
        .iter()
        .map(|event| event.data.to_string())
        .collect();
    assert!(heard.concat().contains("[email]"), "{heard:?}");
    clean("events of a run", &heard.concat());
    // Files as text, in parts that begin and end anywhere; as bytes they are what they are.
    for (offset, limit) in [(3, 4), (0, 12), (8, 12)] {
        let part =
            daemon.get(&format!("/v1/sandboxes/box/files/read?path=file&offset={offset}&limit={limit}"));
        assert_eq!(part["content"], "[email]", "{part}");
    }
    let found = daemon.get("/v1/sandboxes/box/files/search?pattern=example");
    clean("search", &found.to_string());
    assert!(found["matches"][0]["text"].as_str().unwrap().starts_with("[email], [card]"), "{found}");
    let bytes = daemon.get("/v1/sandboxes/box/files/read?path=file&encoding=base64");
    assert!(bytes["content"].as_str().unwrap().starts_with("amFuZS5kb2"), "{bytes}");
    if has(&daemon, "python3") {
        let answer =
            code(&daemon, "box", json!({"code": format!("'{both}'"), "language": "python", "context": "c"}));
        clean("value", &answer.to_string());
        assert!(answer.to_string().contains("[email]"), "{answer}");
    }
    // Addresses stay readable where they say what was denied and could be granted.
    let run = daemon
        .exec("box", json!({"command": "echo 93.184.215.14; getent hosts 93.184.215.14.nip.test; true"}));
    assert_eq!(run["stdout"], "[ip]\n", "{run}");
    assert_eq!(run["violations"][0]["what"], "network: 93.184.215.14.nip.test", "{run}");
    clean("log", &daemon.log());
}

#[test]
fn personal_data_is_masked_only_where_and_as_the_operator_says() {
    let plain = TestDaemon::start();
    let said = format!("{MAIL} {CARD} {PHONE}");
    let echo = json!({"command": format!("echo '{said}'")});
    assert_eq!(plain.exec("box", echo.clone())["stdout"], format!("{said}\n"), "off by default");
    let mut daemon = masking();
    let shown = |daemon: &TestDaemon, sandbox: &str| -> Value {
        daemon.exec(sandbox, echo.clone())["stdout"].clone()
    };
    daemon.succeeds(&["create", "shop", "--profile", "shop"]);
    daemon.post("/v1/sandboxes/shop/children", json!({"name": "shop-child", "memory": "128M"}));
    let once = json!({"command": format!("echo '{said}'"), "profile": "shop"});
    for restarted in [false, true] {
        assert_eq!(shown(&daemon, "shop"), "[email] [card] [phone]\n", "{restarted}");
        assert_eq!(shown(&daemon, "shop-child"), "[email] [card] [phone]\n", "{restarted}");
        assert_eq!(shown(&daemon, "other"), format!("[email] [card] {PHONE}\n"), "{restarted}");
        assert_eq!(daemon.post("/v1/runs", once.clone())["stdout"], "[email] [card] [phone]\n");
        daemon.kill();
        daemon.launch();
    }
}
