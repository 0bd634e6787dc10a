//! Cloud metadata services, played by a server on their own addresses in a network of the test: nothing but
//! a grant with the word `metadata` leads there, be it a range, a name, a table of names or an approval.

use serde_json::{Value, json};

use crate::addresses::alone_with;
use crate::harness::{TestDaemon, finish, per_connection, require};
use crate::servers::{Server, needs, plain_python, python};

/// Connects to each of several hosts and says what was heard.
const REACH: &str = r#"
import json, socket, sys
heard = {}
for host in sys.argv[2:]:
    try:
        with socket.create_connection((host, int(sys.argv[1])), 60) as stream: heard[host] = stream.recv(64).decode()
    except OSError as error: heard[host] = 'denied'
print(json.dumps(heard))"#;

const SECRET: &str = "credentials";

per_connection!(metadata_is_reached_by_a_grant_with_the_word_only);

fn metadata_is_reached_by_a_grant_with_the_word_only() {
    let addresses = [
        "169.254.169.254/32",
        "169.254.170.2/32",
        "169.254.7.7/32",
        "168.63.129.16/32",
        "fd00:ec2::254/128",
        "10.77.0.5/32",
    ];
    require!(alone_with(&addresses));
    let service = Server::saying("169.254.169.254:0", SECRET);
    let port = service.port;
    let others: Vec<Server> =
        ["169.254.170.2", "169.254.7.7", "168.63.129.16", "[fd00:ec2::254]", "10.77.0.5"]
            .iter()
            .map(|address| Server::saying(&format!("{address}:{port}"), SECRET))
            .collect();
    let names = "network_ask = \"2s\"\n[network_hosts]\n\"meta.test\" = \"169.254.169.254\"\n\
                 \"azure.test\" = \"168.63.129.16\"\n\"hidden.test\" = \"::ffff:169.254.169.254\"\n\
                 \"translated.test\" = \"64:ff9b::a9fe:a9fe\"\n\"metadata.google.internal\" = \"169.254.169.254\"\n\
                 \"inside.test\" = \"10.77.0.5\"\n";
    let daemon = TestDaemon::start_configured(names, &[]);
    require!(needs(&daemon, "python3"));
    let literal = ["169.254.169.254", "169.254.170.2", "169.254.7.7", "168.63.129.16", "fd00:ec2::254"];
    let named = ["meta.test", "azure.test", "hidden.test", "translated.test", "metadata.google.internal"];
    let all: Vec<&str> = literal.iter().chain(&named).copied().collect();
    let port_text = port.to_string();
    let reach = |sandbox: &str, hosts: &[&str]| {
        let mut arguments = vec![port_text.as_str()];
        arguments.extend(hosts);
        python(&daemon, sandbox, REACH, &arguments)
    };
    let mut arguments = vec![port_text.as_str()];
    arguments.extend(literal);
    let control = plain_python(REACH, &arguments);
    assert!(control.as_object().unwrap().values().all(|heard| heard == SECRET), "the control: {control}");

    // Without the word it is no grant, at any door, and says what would be one.
    for text in [
        format!("169.254.169.254:{port}"),
        format!("[::ffff:169.254.169.254]:{port}"),
        format!("[64:ff9b::a9fe:a9fe]:{port}"),
        format!("169.254.0.0/16:{port}"),
        format!("169.254.169.254/32:{port}/tcp"),
        format!("[fd00:ec2::254]:{port}"),
        format!("[fe80::]/10:{port}"),
        format!("168.63.129.16:{port}"),
        format!("metadata.google.internal:{port}"),
        format!("http://metadata.google.internal:{port}/v1/* GET"),
    ] {
        for (method, path, body) in [
            ("POST", "/v1/sandboxes/box/grants", json!({ "hosts": [text] })),
            ("POST", "/v1/namespaces/default/grants", json!({ "hosts": [text] })),
            ("POST", "/v1/sandboxes", json!({ "sandbox": "made", "allow": [text] })),
            ("POST", "/v1/runs", json!({ "command": "true", "allow": [text] })),
        ] {
            let answer = daemon.http(method, path, Some(&body));
            assert!(answer.status >= 400, "{path} {text}: {}", answer.text());
            assert!(
                answer.status == 404 || answer.text().contains("/metadata"),
                "{path} {text}: {}",
                answer.text()
            );
        }
        let output = finish(&mut daemon.isle(&["allow", "box", &text]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("169.254.169.254:80/metadata"), "{text}: {said}");
    }

    // Ranges around it, and names that lead there, do not open it.
    let grants: Vec<String> = ["128.0.0.0/1", "[fd00::]/8", "*.google.internal"]
        .iter()
        .chain(&named[..4])
        .map(|host| format!("{host}:{port}"))
        .chain([format!("10.0.0.0/8:{port}"), format!("inside.test:{port}")])
        .collect();
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": grants }));
    let heard = reach("box", &all);
    assert!(heard.as_object().unwrap().values().all(|heard| heard == "denied" || heard == ""), "{heard}");
    assert_eq!(
        reach("box", &["10.77.0.5", "inside.test"]),
        json!({ "10.77.0.5": SECRET, "inside.test": SECRET })
    );
    let net = daemon.get("/v1/sandboxes/box/net").to_string();
    assert!(
        net.contains("metadata_address") && net.contains(&format!("169.254.169.254:{port}/metadata")),
        "{net}"
    );
    // Nobody is asked for it either: pressing a button is not saying the word.
    let requests = daemon.get("/v1/network/requests");
    let asked = |request: &Value| all.iter().any(|host| request.to_string().contains(&format!("{host}\"")));
    assert!(!requests["requests"].as_array().unwrap().iter().any(asked), "{requests}");

    // With it, it is there: by its address, and by a name that is granted, too.
    let word = ["169.254.169.254", "[fd00:ec2::254]"].map(|host| format!("{host}:{port}/metadata"));
    daemon.post(
        "/v1/sandboxes/meant/grants",
        json!({ "hosts": [word[0], word[1], format!("meta.test:{port}")] }),
    );
    let heard = reach("meant", &["169.254.169.254", "fd00:ec2::254", "meta.test", "169.254.170.2"]);
    let expected = json!({
        "169.254.169.254": SECRET, "fd00:ec2::254": SECRET, "meta.test": SECRET, "169.254.170.2": "denied",
    });
    assert_eq!(heard, expected);
    let listed = daemon.get("/v1/sandboxes/meant/grants").to_string();
    assert!(listed.contains(&word[0]), "{listed}");
    drop(others);
}

per_connection!(the_configuration_grants_no_metadata_without_the_word);

fn the_configuration_grants_no_metadata_without_the_word() {
    let mut daemon = TestDaemon::start();
    daemon.terminate();
    for (word, starts) in [("", false), ("/metadata", true)] {
        let grant = format!("169.254.169.254:80{word}");
        for settings in
            [format!("network_allow = [\"{grant}\"]\n"), format!("[profiles.cloud]\nallow = [\"{grant}\"]\n")]
        {
            daemon.home().write("config/isle/config.toml", &settings);
            let started = daemon.try_launch();
            assert_eq!(started.is_ok(), starts, "{settings}: {started:?}");
            if starts {
                daemon.terminate();
            } else {
                let said = format!("{started:?}{}", daemon.log());
                assert!(said.contains("cloud metadata address"), "{settings}: {said}");
            }
        }
    }
    daemon.launch();
}
