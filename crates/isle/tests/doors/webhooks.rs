//! Webhooks: events are sent where the operator said, signed, in order, until they have arrived; and nobody
//! else can say where.

use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Received, Receiver, TestDaemon, finish, until};
use crate::mcp::Client;
use crate::tenants::{listening, tenant};

fn add(daemon: &TestDaemon, mut wish: Value, receiver: &Receiver) -> Value {
    wish["url"] = json!(receiver.url());
    daemon.post("/v1/webhooks", wish)
}

/// How one fares.
fn fares(daemon: &TestDaemon, id: &Value) -> Value {
    let listed = daemon.get("/v1/webhooks?all=true");
    let found = listed["webhooks"].as_array().unwrap().iter().find(|one| one["webhook"] == *id);
    found.unwrap_or_else(|| panic!("{listed}")).clone()
}

fn is_signed_with(received: &Received, secret: &str) -> bool {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    code.update(received.header("isle-timestamp").as_bytes());
    code.update(b".");
    code.update(&received.body);
    let code: String = code.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    received.header("isle-signature") == format!("v1={code}")
}

fn is(kind: &'static str, sandbox: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["kind"] == kind && event["sandbox"] == sandbox
}

#[test]
fn a_webhook_gets_the_events_it_asked_for_signed_and_in_order() {
    let daemon = TestDaemon::start();
    let (all, some) = (Receiver::start(), Receiver::start());
    daemon.shell("before", "true");
    let added = add(&daemon, json!({}), &all);
    let secret = added["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && secret.len() > 40, "{added}");
    let chosen = json!({"kind": ["run_failed"], "sandbox": "box"});
    let chosen = add(&daemon, chosen, &some);
    daemon.exec("box", json!({"command": "exit 3"}));
    daemon.exec("other", json!({"command": "exit 4"}));
    daemon.exec("box", json!({"command": "exit 5"}));
    all.until_taken("the last of them arrives", |event| event["data"]["exit_code"] == 5);
    let taken = all.taken();
    assert!(taken.iter().all(|event| event["sandbox"] != "before"), "from now on: {taken:?}");
    assert!(taken.windows(2).all(|pair| pair[0]["id"].as_u64() < pair[1]["id"].as_u64()), "{taken:?}");
    let told = daemon.get("/v1/events/history?kind=run_failed&limit=10");
    let told = told["events"].as_array().unwrap();
    assert!(told.iter().all(|event| taken.contains(event)), "as at every other door: {taken:?}");
    for received in all.received() {
        assert_eq!(received.line, "POST /hook?who=me HTTP/1.1");
        assert_eq!(received.header("content-type"), "application/json");
        assert_eq!(received.header("isle-webhook"), added["webhook"]);
        assert_eq!(received.json()["webhook"], added["webhook"]);
        assert!(is_signed_with(&received, &secret), "{received:?}");
        assert!(!is_signed_with(&received, chosen["secret"].as_str().unwrap()));
    }
    some.until_taken("the chosen one arrives", |event| event["data"]["exit_code"] == 5);
    let codes: Vec<Value> = some.taken().iter().map(|event| event["data"]["exit_code"].clone()).collect();
    assert_eq!(codes, [3, 5], "{:?}", some.taken());
    until("it is told how both fare", || {
        let fares = fares(&daemon, &chosen["webhook"]);
        fares["delivered"] == 2 && fares["lost"] == 0 && fares["last_delivered_at"].is_string()
    });
}

#[test]
fn what_does_not_arrive_is_sent_again_also_by_the_next_daemon() {
    let mut daemon = TestDaemon::start();
    let receiver = Receiver::start();
    receiver.answer(503, "");
    let added = add(&daemon, json!({"kind": ["run_failed"]}), &receiver);
    let secret = added["secret"].as_str().unwrap().to_owned();
    daemon.exec("box", json!({"command": "exit 3"}));
    until("it is tried, and tried again", || receiver.received().len() >= 2);
    let state = fares(&daemon, &added["webhook"]);
    assert_eq!(state["last_error"], "the receiver responded with status 503", "{state}");
    assert!(state["failed_tries"].as_u64().unwrap() >= 1 && state["next_try_at"].is_string(), "{state}");
    assert!(state["behind"].as_u64().unwrap() >= 1 && state["delivered"] == 0, "{state}");
    // The history is written a moment later than told.
    until("it is in the history", || {
        !daemon.get("/v1/events/history?kind=run_failed")["events"][0].is_null()
    });
    daemon.kill();
    receiver.answer(200, "");
    receiver.forget();
    daemon.launch();
    receiver.until_taken("the next daemon sends it", is("run_failed", "box"));
    assert!(receiver.received().iter().all(|one| is_signed_with(one, &secret)), "with the same secret");
    until("its place is on record", || fares(&daemon, &added["webhook"])["delivered"] == 1);
    daemon.terminate();
    receiver.forget();
    daemon.launch();
    daemon.exec("box", json!({"command": "exit 4"}));
    receiver.until_taken("what is new is sent", |event| event["data"]["exit_code"] == 4);
    assert_eq!(receiver.taken().len(), 1, "and nothing twice: {:?}", receiver.taken());
}

#[test]
fn redirects_are_not_followed_and_names_lead_nowhere_they_may_not() {
    let config = "[network_hosts]\n\"inside.test\" = \"127.0.0.1\"\n";
    let daemon = TestDaemon::start_configured(config, &[]);
    let (sly, elsewhere) = (Receiver::start(), Receiver::start());
    sly.answer(307, &format!("Location: {}\r\n", elsewhere.url()));
    let added = add(&daemon, json!({"kind": ["run_failed"]}), &sly);
    let url = format!("http://inside.test:{}/", elsewhere.port);
    let closed = daemon.post("/v1/webhooks", json!({"url": url, "kind": ["run_failed"]}));
    daemon.exec("box", json!({"command": "exit 3"}));
    until("the redirect is told", || {
        fares(&daemon, &added["webhook"])["last_error"]
            == "the receiver responded with status 307: redirects are not followed"
    });
    until("the address is told", || {
        let why = fares(&daemon, &closed["webhook"])["last_error"].to_string();
        why.contains("inside.test") && why.contains("127.0.0.1")
    });
    assert!(elsewhere.received().is_empty(), "{:?}", elsewhere.received());
    // Said to be meant, it is reached.
    let wish = json!({"url": url, "kind": ["run_failed"], "addresses": ["127.0.0.0/8"]});
    daemon.post("/v1/webhooks", wish);
    daemon.exec("box", json!({"command": "exit 4"}));
    elsewhere.until_taken("it arrives by name", |event| event["data"]["exit_code"] == 4);
}

#[test]
fn addresses_that_are_none_or_open_too_much_are_refused() {
    let daemon = TestDaemon::start();
    let receiver = Receiver::start();
    for (wish, word) in [
        (json!({"url": "ftp://example.com/"}), "https://"),
        (json!({"url": "example.com"}), "https://"),
        (json!({"url": "https://user:word@example.com/"}), "password"),
        (json!({"url": "http://169.254.169.254/latest"}), "metadata"),
        (json!({"url": "http://8.8.8.8/"}), "http://"),
        (json!({"url": receiver.url(), "kind": ["run_exploded"]}), "run_exploded"),
        (json!({"url": receiver.url(), "addresses": ["example.com"]}), "example.com"),
        (json!({"url": receiver.url(), "colour": "red"}), "colour"),
    ] {
        let error = daemon.refused("POST", "/v1/webhooks", Some(&wish));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(daemon.get("/v1/webhooks?all=true")["webhooks"], json!([]), "nothing was added");
    let gone = "/v1/webhooks/hook_00000000000000000000000000";
    assert_eq!(daemon.refused("DELETE", gone, None)["code"], "WEBHOOK_NOT_FOUND");
    for _ in 0..64 {
        add(&daemon, json!({}), &receiver);
    }
    let error = daemon.refused("POST", "/v1/webhooks", Some(&json!({"url": receiver.url()})));
    assert_eq!(error["code"], "LIMIT_REACHED", "{error}");
}

#[test]
fn namespaces_have_webhooks_of_their_own_and_tenants_and_models_add_none() {
    let (daemon, address) = listening(&[]);
    let (acme, both) = (Receiver::start(), Receiver::start());
    let guest = tenant(&daemon, &address, "acme");
    daemon.succeeds(&["webhooks", "add", &acme.url(), "--namespace", "acme"]);
    daemon.succeeds(&["webhooks", "add", &both.url(), "--all"]);
    daemon.shell("ours", "true");
    guest.shell("theirs", "true");
    both.until_taken("everybody's arrive", is("run_completed", "theirs"));
    both.until_taken("everybody's arrive", is("run_completed", "ours"));
    acme.until_taken("those of acme arrive", is("run_completed", "theirs"));
    assert!(acme.taken().iter().all(|event| event["namespace"] == "acme"), "{:?}", acme.taken());
    let of = |namespace: &str| daemon.succeeds(&["webhooks", "list", "--namespace", namespace]);
    assert!(of("acme").contains(&acme.url()) && !of("acme").contains(&both.url()), "{}", of("acme"));
    assert!(of("default").contains("No webhooks"), "{}", of("default"));
    let everything = daemon.succeeds(&["webhooks", "list", "--all"]);
    assert!(everything.contains(&acme.url()) && everything.contains("(all)"), "{everything}");
    let wish = json!({"url": "https://example.com/"});
    let refused = guest.ask("POST", "/v1/webhooks", Some(&wish));
    assert_eq!((refused.status, refused.code().as_str()), (403, "FORBIDDEN"));
    assert_eq!(guest.ask("GET", "/v1/webhooks", None).code(), "FORBIDDEN");
    let (mut model, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "all,admin"]);
    let tools = model.request("tools/list", json!({})).to_string();
    assert!(tools.contains("\"list_webhooks\"") && !tools.contains("\"add_webhook\""), "{tools}");
    let audit = daemon.get("/v1/audit?action=add_webhook").to_string();
    assert!(audit.contains(&format!("127.0.0.1:{}", both.port)), "{audit}");
}

#[test]
fn a_secret_is_shown_once_and_worth_nothing_after_its_webhook_is_removed() {
    let mut daemon = TestDaemon::start();
    let receiver = Receiver::start();
    let output = finish(&mut daemon.isle(&["webhooks", "add", &receiver.url(), "--kind", "run_completed"]));
    let secret = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let said = String::from_utf8(output.stderr).unwrap();
    let id = said.split_whitespace().find(|word| word.starts_with("hook_")).unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && said.contains("shown only once"), "{secret} {said}");
    let listed = daemon.succeeds(&["webhooks", "list", "--json", "--all"]);
    assert!(listed.contains(&id) && !listed.contains(&secret[..20]), "{listed}");
    daemon.shell("box", "true");
    receiver.until_taken("it is sent", is("run_completed", "box"));
    daemon.kill();
    let mut state = Vec::new();
    for file in std::fs::read_dir(daemon.home().state_dir()).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            state.extend(std::fs::read(file.path()).unwrap());
        }
    }
    assert!(!state.windows(secret.len()).any(|part| part == secret.as_bytes()), "it is kept nowhere");
    daemon.launch();
    assert_eq!(daemon.succeeds(&["webhooks", "rm", &id]), format!("{id}\n"));
    receiver.forget();
    let other = Receiver::start();
    add(&daemon, json!({"kind": ["run_completed"]}), &other);
    daemon.shell("after", "true");
    other.until_taken("another one gets it", is("run_completed", "after"));
    assert!(receiver.taken().is_empty(), "{:?}", receiver.taken());
    // Without the key nothing can be signed, and nothing is sent unsigned.
    daemon.terminate();
    std::fs::remove_file(daemon.home().state_dir().join("webhook.key")).unwrap();
    daemon.launch();
    other.forget();
    daemon.shell("later", "true");
    let listed = daemon.get("/v1/webhooks")["webhooks"][0].clone();
    assert!(listed["last_error"].as_str().unwrap().contains("key"), "{listed}");
    assert!(other.received().is_empty());
}
