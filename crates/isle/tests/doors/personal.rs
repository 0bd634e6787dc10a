//! Personal data is masked in everything that comes out of a sandbox, where the operator wishes it, and
//! nowhere else.

use serde_json::{Value, json};

use crate::contexts::{code, has};
use crate::harness::TestDaemon;
use crate::traces::{records, spoken};

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
    for (place, text) in records(&daemon, run["run_id"].as_str().unwrap()) {
        clean(&place, &text);
        let shown = ["/v1/runs", "/v1/events", "isle history"].iter().any(|begin| place.starts_with(begin));
        assert!(!shown || text.contains("[email]"), "{place}: {text}");
    }
    // Streams, a terminal, a sandbox for one command.
    for (place, text) in spoken(&daemon, "box", &format!("echo {MAIL}")) {
        assert!(text.contains("[email]"), "{place}: {text}");
        clean(&place, &text);
    }
    assert_eq!(daemon.succeeds(&["run", "--", "echo", CARD]), "[card]\n");
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
        assert_eq!(shown(&daemon, "shop/shop-child"), "[email] [card] [phone]\n", "{restarted}");
        assert_eq!(shown(&daemon, "other"), format!("[email] [card] {PHONE}\n"), "{restarted}");
        assert_eq!(daemon.post("/v1/runs", once.clone())["stdout"], "[email] [card] [phone]\n");
        daemon.kill();
        daemon.launch();
    }
}
