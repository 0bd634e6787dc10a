//! Values that were put into a sandbox are masked in everything that comes out of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{attach, set, value};
use crate::contexts::{code, has};
use crate::harness::{TestDaemon, until};
use crate::traces::{records, spoken};

#[test]
fn what_a_command_prints_does_not_tell_whether_it_begins_a_value() {
    let daemon = TestDaemon::start();
    let secret = value("guess");
    set(&daemon, "KEY", &secret);
    let in_hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    // While a command still runs, everything that it printed a while ago is shown, a guess as anything else.
    for guess in [&secret[..secret.len() - 1], &secret[..5], &in_hex[..in_hex.len() - 1], &in_hex[..3]] {
        for printed in [guess.to_owned(), "z".repeat(guess.len())] {
            let command = format!("printf '~{printed}'; sleep 600");
            let run = daemon.exec("box", json!({"command": command, "secrets": ["KEY"], "wait": "0s"}));
            let logs = format!("/v1/runs/{}/logs?stream=stdout", run["run_id"].as_str().unwrap());
            until("all of it is shown", || daemon.get(&logs)["stdout"]["text"] == format!("~{printed}"));
            daemon
                .post(&format!("/v1/runs/{}/kill", run["run_id"].as_str().unwrap()), json!({"force": true}));
        }
    }
}

#[test]
fn an_exposed_value_is_masked_in_all_that_comes_out() {
    let daemon = TestDaemon::start();
    let secret = format!("{}/ä \"q\"", value("mask"));
    set(&daemon, "KEY", &secret);
    attach(&daemon, "box", json!({"expose": ["KEY"]}));
    let clean = |what: &str, text: &str| {
        assert!(!text.contains(&secret) && !text.contains(&secret[..20]), "{what}: {text}");
    };
    let run = daemon.exec(
        "box",
        json!({"command": "echo \"a $KEY b\"; echo \"$KEY\" >&2; printf %s \"$KEY\" | tee copy > other"}),
    );
    assert_eq!(
        (&run["stdout"], &run["stderr"]),
        (&json!("a [secret KEY] b\n"), &json!("[secret KEY]\n")),
        "{run}"
    );
    // In pieces of one byte.
    let slowly = "printf %s \"$KEY\" | dd bs=1 2>/dev/null; echo .";
    let run = daemon.exec("box", json!({"command": slowly}));
    assert_eq!(run["stdout"], "[secret KEY].\n", "{run}");
    // Encoded, wherever it stands in what is encoded.
    let encoded = daemon.exec("box", json!({"command": "for p in '' x xy; do printf '%s%s' \"$p\" \"$KEY\" | base64 -w0; echo; done; printf %s \"$KEY\" | od -An -tx1 | tr -d ' \\n'; echo"}));
    let text = encoded["stdout"].as_str().unwrap();
    assert_eq!(text.matches("[secret KEY]").count(), 4, "{text}");
    for plain in [STANDARD.encode(&secret), secret.bytes().map(|byte| format!("{byte:02x}")).collect()] {
        assert!(!text.contains(&plain[4..24]), "{text}");
    }
    // As addresses and JSON have it.
    let percent = |space: &str| -> String {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        let one = |byte: u8| match byte {
            b' ' => space.to_owned(),
            byte if plain(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        secret.bytes().map(one).collect()
    };
    let in_json = serde_json::to_string(&secret).unwrap();
    let in_ascii = in_json.replace('ä', "\\u00e4");
    for form in [percent("%20"), percent("+"), in_json, in_ascii] {
        daemon.post("/v1/sandboxes/box/files/write", json!({"files": [{"path": "form", "content": form}]}));
        let shown = daemon.shell("box", "cat form");
        assert!(["[secret KEY]", "\"[secret KEY]\""].contains(&shown.as_str()), "{form}: {shown}");
    }
    // The command itself, in its record, the audit and the events.
    let typed = daemon.exec("box", json!({"argv": ["echo", secret]}));
    assert_eq!(typed["stdout"], "[secret KEY]\n");
    for (place, text) in records(&daemon, typed["run_id"].as_str().unwrap()) {
        clean(&place, &text);
        let shown = ["/v1/runs", "/v1/events", "isle history"].iter().any(|begin| place.starts_with(begin));
        assert!(!shown || text.contains("[secret KEY]"), "{place}: {text}");
    }
    // Streams, a terminal, a sandbox for one command.
    for (place, text) in spoken(&daemon, "box", "echo \"$KEY\"; echo end") {
        assert!(text.contains("[secret KEY]"), "{place}: {text}");
        clean(&place, &text);
    }
    let output = daemon.succeeds(&["run", "--expose-secret", "KEY=OTHER", "--", "printenv", "OTHER"]);
    assert_eq!(output, "[secret KEY]\n");
    // Files that are read through us, in parts that begin and end anywhere.
    let whole = daemon.get("/v1/sandboxes/box/files/read?path=copy");
    assert_eq!(whole["content"], "[secret KEY]");
    for (offset, limit) in [(3, 10), (0, 12), (secret.len() - 4, 100)] {
        let part =
            daemon.get(&format!("/v1/sandboxes/box/files/read?path=copy&offset={offset}&limit={limit}"));
        assert_eq!(part["content"], "[secret KEY]", "{part}");
    }
    let line = daemon.get("/v1/sandboxes/box/files/read?path=copy&lines=1");
    assert_eq!(line["content"], "[secret KEY]");
    let found = daemon.get("/v1/sandboxes/box/files/search?pattern=s3cr3t");
    assert_eq!(found["matches"][0]["text"], "[secret KEY]", "{found}");
    clean("search", &found.to_string());
    // What code gives back.
    if has(&daemon, "python3") {
        let read = json!({"code": "import os\nraise ValueError(os.environ['KEY'])", "language": "python"});
        let answer = code(&daemon, "box", read).to_string();
        assert!(answer.contains("[secret KEY]"), "{answer}");
        clean("exception", &answer);
        let read =
            json!({"code": "import os\n{'k': os.environ['KEY']}", "language": "python", "context": "c"});
        clean("value", &code(&daemon, "box", read).to_string());
    }
    // Several commands, each with its own part of the output.
    let batch = json!({"commands": [{"command": "echo \"$KEY\""}, {"command": "echo two"}]});
    let batch = daemon.post("/v1/sandboxes/box/commands", batch);
    assert_eq!(batch["stdout"], "[secret KEY]\ntwo\n", "{batch}");
    assert_eq!(
        (&batch["commands"][1]["stdout_offset"], &batch["commands"][1]["stdout_bytes"]),
        (&json!(13), &json!(4)),
        "{batch}"
    );
}
