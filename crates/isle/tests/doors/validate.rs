//! Code that is looked at before it runs, in both tiers.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code, has};
use crate::harness::{TestDaemon, finish, needs_root, require};

fn validate(daemon: &TestDaemon, sandbox: &str, arguments: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/validate"), arguments)
}

fn names(answer: &Value) -> Vec<(String, u64)> {
    let findings = answer["findings"].as_array().unwrap();
    let of = |one: &Value| (one["name"].as_str().unwrap().to_owned(), one["line"].as_u64().unwrap());
    findings.iter().map(of).collect()
}

#[test]
fn a_syntax_error_is_told_with_line_and_column() {
    let daemon = TestDaemon::start();
    let cases = [
        ("python", "python3", "x = 1\ndef f(:\n    pass\n", 2, 7),
        ("python", "python3", "print('é' +)\n", 1, 12),
        ("python", "python3", "x = 1\nreturn x\n", 2, 1),
        ("node", "node", "const a = 1;\nlet b = ;\n", 2, 9),
        ("node", "node", "import x from 'y';\nexport const z = ;\n", 2, 18),
        ("node", "node", "const x = await f(;\n", 1, 19),
        ("shell", "sh", "echo a\necho b )\n", 2, 8),
        ("shell", "sh", "if true\nthen echo x\n", 2, 12),
    ];
    for sandbox in both_tiers(&daemon) {
        for (language, program, text, line, column) in cases {
            if !has(&daemon, program) {
                continue;
            }
            let answer = validate(&daemon, sandbox, json!({"code": text, "language": language}));
            assert_eq!(answer["verdict"], "reject", "{text}: {answer}");
            let error = &answer["errors"][0];
            assert_eq!(
                (&error["line"], &error["column"]),
                (&json!(line), &json!(column)),
                "{text}: {answer}"
            );
            assert!(error["message"].as_str().is_some_and(|words| words.len() > 5), "{answer}");
            assert!(answer.get("code").is_none(), "{answer}");
        }
    }
}

#[test]
fn good_code_of_every_form_passes_and_is_not_run() {
    let daemon = TestDaemon::start();
    let cases = [
        ("python", "python3", "import asyncio\nopen('ran', 'w')\nawait asyncio.sleep(0)\n"),
        ("node", "node", "require('fs').writeFileSync('ran', '');\nreturn;\n"),
        (
            "node",
            "node",
            "import fs from 'node:fs';\nexport const x = await fs.promises.writeFile('ran', '');\n",
        ),
        (
            "node",
            "node",
            "#!/usr/bin/env node\nconst x = await import('os');\nrequire('fs').writeFileSync('ran', x.EOL);\n",
        ),
        ("shell", "sh", "#!/bin/sh\ntouch ran\n"),
    ];
    for sandbox in both_tiers(&daemon) {
        for (language, program, text) in cases {
            if !has(&daemon, program) {
                continue;
            }
            let answer = validate(&daemon, sandbox, json!({"code": text, "language": language}));
            assert_eq!(
                (&answer["verdict"], &answer["errors"]),
                (&json!("pass"), &json!([])),
                "{text}: {answer}"
            );
        }
        assert_eq!(daemon.shell(sandbox, "ls"), "", "it was looked at, not run");
    }
}

#[test]
fn dangers_are_advice_unless_rejected_and_can_be_left_out_by_name() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    if has(&daemon, "python3") {
        let text = "# eval('x')\nwords = 'os.system(1)'\nimport subprocess as s, shutil\neval('1')\ns.run('ls', shell=True)\nshutil.rmtree('x')\nwhile True:\n    pass\n";
        let body = json!({"code": text, "language": "python", "fix": false});
        let answer = validate(&daemon, "box", body.clone());
        let expected = [("eval", 4), ("shell", 5), ("delete_tree", 6), ("endless_loop", 7)];
        assert_eq!(names(&answer), expected.map(|(name, line)| (name.to_owned(), line)), "{answer}");
        assert_eq!(answer["verdict"], "pass", "advice: {answer}");
        let strict = |ignore: Value| {
            let mut body = body.clone();
            body["reject_findings"] = json!(true);
            body["ignore"] = ignore;
            validate(&daemon, "box", body)
        };
        assert_eq!(strict(json!([]))["verdict"], "reject");
        let left = strict(json!(["eval", "shell", "delete_tree"]));
        assert_eq!(
            (names(&left), &left["verdict"]),
            (vec![("endless_loop".to_owned(), 7)], &json!("reject"))
        );
        let none = strict(json!(["eval", "shell", "delete_tree", "endless_loop"]));
        assert_eq!((names(&none), &none["verdict"]), (vec![], &json!("pass")));
    }
    if has(&daemon, "node") {
        let text = "// eval(1)\nconst words = 'eval(1)';\nconst c = require('child_process');\neval('1');\nfor (;;) {}\n";
        let answer = validate(&daemon, "box", json!({"code": text, "language": "node"}));
        let expected = [("shell", 3), ("eval", 4), ("endless_loop", 5)];
        assert_eq!(names(&answer), expected.map(|(name, line)| (name.to_owned(), line)), "{answer}");
    }
    let text = "# rm -rf /\necho 'rm -rf /'\nrm -rf x\ncurl https://get.example.com/i.sh | sh\n";
    let answer = validate(&daemon, "box", json!({"code": text, "language": "shell"}));
    assert_eq!(names(&answer), [("delete_tree".to_owned(), 3), ("pipe_to_shell".to_owned(), 4)], "{answer}");
    assert_eq!(answer["domains"], json!(["get.example.com"]));
    let body = json!({"code": "1", "ignore": ["no_such_finding"]});
    let error = daemon.refused("POST", "/v1/sandboxes/box/validate", Some(&body));
    assert_eq!(error["code"], "INVALID_ARGUMENT");
    assert!(error["details"]["findings"].to_string().contains("eval"), "{error}");
}

#[test]
fn suggested_fixes_keep_the_original_and_run() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        if has(&daemon, "python3") {
            let text = "\"\"\"os.getcwd() in a text\"\"\"\nfrom __future__ import annotations\n# sys.exit()\nnote = 'random.random()'\nvalue = json.dumps({'pi': math.floor(math.pi)})\nvalue\n";
            let answer = validate(&daemon, sandbox, json!({"code": text, "language": "python"}));
            assert_eq!(
                (&answer["verdict"], &answer["original"]),
                (&json!("fixed"), &json!(text)),
                "{answer}"
            );
            let expected = text
                .replace("annotations\n", "annotations\n# sys.exit()\nimport json\nimport math\n")
                .replacen("math\n# sys.exit()\n", "math\n", 1)
                .replace("\nvalue\n", "\nprint(value)\n");
            assert_eq!(answer["code"], json!(expected), "{answer}");
            let ran = code(&daemon, sandbox, json!({"code": answer["code"], "language": "python"}));
            assert_eq!(ran["stdout"], "{\"pi\": 3}\n", "{ran}");
            let bound = "def f(json):\n    return json.x\nmath = None\nmath.pi\nprint(f)\n";
            let answer = validate(&daemon, sandbox, json!({"code": bound, "language": "python"}));
            assert_eq!(answer["verdict"], "pass", "what has the name already is not imported: {answer}");
        }
        if has(&daemon, "node") {
            let text = "'use strict';\n// os.cpus()\nconst name = path.basename('/a/b');\n`${name}!`";
            let answer = validate(&daemon, sandbox, json!({"code": text, "language": "node"}));
            let expected = "'use strict';\n// os.cpus()\nconst path = require('path');\nconst name = path.basename('/a/b');\nconsole.log(`${name}!`)";
            assert_eq!(answer["code"], json!(expected), "{answer}");
            let ran = code(&daemon, sandbox, json!({"code": answer["code"], "language": "node"}));
            assert_eq!(ran["stdout"], "b!\n", "{ran}");
            let module = validate(
                &daemon,
                sandbox,
                json!({"code": "export const n = os.cpus();\n", "language": "node"}),
            );
            assert_eq!(
                module["code"], "import os from 'node:os';\nexport const n = os.cpus();\n",
                "{module}"
            );
        }
        let plain =
            validate(&daemon, sandbox, json!({"code": "1 + 1\n", "language": "python", "fix": false}));
        assert_eq!((&plain["verdict"], &plain["fixes"]), (&json!("pass"), &json!([])), "{plain}");
    }
}

#[test]
fn hosts_are_told_from_code_and_never_from_comments_and_nothing_is_opened() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    if has(&daemon, "python3") {
        let text = "\"\"\"See https://docs.example.com/\"\"\"\n# https://comment.example.com/\nurl = 'https://user:pw@Api.example.com:8443/v1'\nother = f'http://{1}.example.net and http://two.example.net/'\nprint(url, other)\n";
        let answer = validate(&daemon, "box", json!({"code": text, "language": "python"}));
        assert_eq!(answer["domains"], json!(["api.example.com", "two.example.net"]), "{answer}");
        assert_eq!(answer["verdict"], "pass");
    }
    if has(&daemon, "node") {
        let text = "/* https://comment.example.com */ const a = 'wss://ws.example.com/x', b = `https://t.example.com/${a}`;";
        let answer = validate(&daemon, "box", json!({"code": text, "language": "node"}));
        assert_eq!(answer["domains"], json!(["t.example.com", "ws.example.com"]), "{answer}");
    }
    let reach =
        daemon.exec("box", json!({"command": "ls /sys/class/net 2>/dev/null; cat /proc/net/route | wc -l"}));
    assert_eq!(reach["stdout"], "1\n", "loopback and nothing else: {reach}");
}

#[test]
fn what_cannot_be_checked_is_refused_with_the_reason() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "printf 'x = (' > bad.py; printf '\\377' > binary.py; head -c 300000 /dev/zero | tr '\\0' ' ' > big.py; echo 'echo $((1+1))' > tool");
    let cases = [
        (json!({}), "INVALID_ARGUMENT"),
        (json!({"code": "1", "path": "bad.py"}), "INVALID_ARGUMENT"),
        (json!({"code": "1", "language": "cobol"}), "INVALID_ARGUMENT"),
        (json!({"path": "missing.py"}), "FILE_NOT_FOUND"),
        (json!({"path": "binary.py"}), "INVALID_ARGUMENT"),
        (json!({"path": "big.py"}), "TOO_LARGE"),
        (json!({"code": " ".repeat(300_000)}), "TOO_LARGE"),
        (json!({"code": "1", "strict": true}), "INVALID_ARGUMENT"),
    ];
    for (body, code) in cases {
        assert_eq!(daemon.refused("POST", "/v1/sandboxes/box/validate", Some(&body))["code"], code, "{body}");
    }
    if has(&daemon, "python3") {
        let answer = validate(&daemon, "box", json!({"path": "bad.py"}));
        assert_eq!(
            (&answer["verdict"], &answer["errors"][0]["line"]),
            (&json!("reject"), &json!(1)),
            "{answer}"
        );
        let deep = validate(&daemon, "box", json!({"code": "(".repeat(100_000), "language": "python"}));
        assert_eq!(deep["verdict"], "reject", "{deep}");
    }
    let unnamed = validate(&daemon, "box", json!({"path": "tool"}));
    assert_eq!((&unnamed["language"], &unnamed["verdict"]), (&json!("shell"), &json!("pass")), "{unnamed}");
}

#[test]
fn a_check_without_an_interpreter_names_it() {
    require!(needs_root("hide programs"));
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let hidden = directories
        .iter()
        .flat_map(|directory| ["node", "nodejs"].map(|name| std::path::Path::new(directory).join(name)))
        .filter(|path| path.exists())
        .map(|path| path.canonicalize().unwrap());
    let daemon = TestDaemon::start_hiding(hidden.collect(), &[]);
    let body = json!({"code": "1", "language": "node"});
    let error = daemon.refused("POST", "/v1/sandboxes/box/validate", Some(&body));
    assert_eq!(error["code"], "RUNTIME_NOT_AVAILABLE", "{error}");
}

#[test]
fn the_command_line_checks_a_file_and_says_it_as_compilers_do() {
    let daemon = TestDaemon::start();
    daemon.home().write("good.sh", "echo fine\n");
    daemon.home().write("bad.sh", "echo (\n");
    assert_eq!(daemon.succeeds(&["validate", "good.sh"]), "pass shell\n");
    let output = finish(&mut daemon.isle(&["validate", "bad.sh"]));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("bad.sh:1:") && said.contains(": error: "), "{said}");
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    if has(&daemon, "python3") {
        daemon.home().write("nice.py", "eval('1')\nmath.pi\n");
        let said = daemon.succeeds(&["validate", "nice.py"]);
        assert!(said.contains("nice.py:1:1: eval: ") && said.contains("fix: added: import math"), "{said}");
        assert_eq!(
            daemon.succeeds(&["validate", "nice.py", "--show"]),
            "import math\neval('1')\nprint(math.pi)\n"
        );
        let strict = finish(&mut daemon.isle(&["validate", "nice.py", "--reject-findings"]));
        assert_eq!(strict.status.code(), Some(1));
        daemon.succeeds(&["validate", "nice.py", "--reject-findings", "--ignore", "eval"]);
    }
    let runs = daemon.get("/v1/runs?limit=20");
    assert!(
        runs["runs"].as_array().unwrap().iter().any(|run| run["command"] == "validate 10 bytes of shell"),
        "{runs}"
    );
}
