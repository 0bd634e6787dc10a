//! Packages installed inside a sandbox, from files and from an index on its own loopback.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code, needs};
use crate::harness::{Missing, TestDaemon, finish, require, until};

/// Makes a wheel with nothing but what Python brings along: a module and a program.
const WHEEL: &str = r#"
import sys, zipfile
name, version, place = sys.argv[1:4]
with zipfile.ZipFile(f"{place}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr(f"{name}.py", f"version = '{version}'\ndef main():\n    print('{name} runs')\n")
    info = f"{name}-{version}.dist-info"
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-says = {name}:main\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

/// A package for Node.js as npm packs them.
pub(crate) const TARBALL: &str = "mkdir -p package && \
    echo '{\"name\": \"isle-demo\", \"version\": \"1.2.3\", \"main\": \"index.js\", \"bin\": {\"isle-demo-says\": \"says.js\"}}' > package/package.json && \
    echo 'exports.version = \"1.2.3\"' > package/index.js && \
    printf '#!/usr/bin/env node\\nconsole.log(\"demo runs\")\\n' > package/says.js && \
    tar czf isle-demo-1.2.3.tgz package && rm -r package";

fn install(daemon: &TestDaemon, sandbox: &str, arguments: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/install"), arguments)
}

pub(crate) fn wheel(daemon: &TestDaemon, sandbox: &str, name: &str, version: &str) {
    let body = json!({"code": WHEEL, "language": "python", "args": [name, version, "."]});
    let made = code(daemon, sandbox, body);
    assert_eq!(made["state"], "completed", "{made}");
}

pub(crate) fn needs_pip(daemon: &TestDaemon) -> Result<(), Missing> {
    daemon.needs("box", "python3 -m pip --version", "Python with pip")
}

#[test]
fn a_python_package_is_installed_from_a_file_and_found_by_code_and_commands() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs_pip(&daemon));
        // An interpreter that is warm, and a context, already.
        let before = json!({"code": "import isle_demo", "language": "python", "context": "c"});
        assert_eq!(code(&daemon, sandbox, before)["error"]["name"], "ModuleNotFoundError");
        wheel(&daemon, sandbox, "isle_demo", "1.0");
        let answer = install(
            &daemon,
            sandbox,
            json!({"packages": ["./isle_demo-1.0-py3-none-any.whl"], "manager": "pip", "wait": "100s"}),
        );
        assert_eq!((&answer["installed"], &answer["manager"]), (&json!(true), &json!("pip")), "{answer}");
        let import = json!({"code": "import isle_demo; print(isle_demo.version)", "language": "python"});
        assert_eq!(code(&daemon, sandbox, import.clone())["stdout"], "1.0\n");
        let mut in_context = import;
        in_context["context"] = json!("c");
        assert_eq!(code(&daemon, sandbox, in_context)["stdout"], "1.0\n");
        assert_eq!(daemon.shell(sandbox, "isle_demo-says"), "isle_demo runs\n");
        // Without a word about it, pip is what there is.
        let again = install(
            &daemon,
            sandbox,
            json!({"packages": ["/workspace/isle_demo-1.0-py3-none-any.whl"], "wait": "100s"}),
        );
        assert_eq!((&again["installed"], &again["manager"]), (&json!(true), &json!("pip")), "{again}");
        let runs = daemon.get(&format!("/v1/runs?sandbox={sandbox}&limit=20"));
        let commands: Vec<&Value> =
            runs["runs"].as_array().unwrap().iter().map(|run| &run["command"]).collect();
        assert!(commands.contains(&&json!("pip install ./isle_demo-1.0-py3-none-any.whl")), "{runs}");
    }
    assert!(!std::path::Path::new("/home/sandbox").exists(), "nothing of it is on the host");
}

#[test]
fn a_node_package_is_installed_from_a_file_and_found_by_code_and_commands() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "npm"));
        daemon.shell(sandbox, TARBALL);
        let body = json!({"packages": ["./isle-demo-1.2.3.tgz"], "manager": "npm", "wait": "100s"});
        let answer = install(&daemon, sandbox, body);
        assert_eq!(answer["installed"], true, "{answer}");
        let require = json!({"code": "console.log(require('isle-demo').version)", "language": "node"});
        assert_eq!(code(&daemon, sandbox, require)["stdout"], "1.2.3\n");
        assert_eq!(daemon.shell(sandbox, "isle-demo-says"), "demo runs\n");
    }
}

#[test]
fn an_index_inside_the_sandbox_serves_names_with_versions() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    require!(needs_pip(&daemon));
    daemon.shell("box", "mkdir -p simple/isle-demo && touch log");
    for version in ["1.0", "2.0"] {
        wheel(&daemon, "box", "isle_demo", version);
        daemon.shell("box", "mv *.whl simple/isle-demo/");
    }
    let server = "cd /workspace && exec python3 -u -m http.server --bind 127.0.0.1 8471 2>> log";
    let server = daemon.exec("box", json!({"command": server, "wait": "0s"}));
    until("the index answers", || {
        let asked = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8471/simple/\")'";
        daemon.exec("box", json!({"command": asked}))["state"] == "completed"
    });
    let body = json!({"packages": ["isle-demo<2"], "manager": "pip", "index": "http://127.0.0.1:8471/simple", "wait": "100s"});
    assert_eq!(install(&daemon, "box", body)["installed"], true);
    let version = json!({"code": "import isle_demo; print(isle_demo.version)", "language": "python"});
    assert_eq!(code(&daemon, "box", version.clone())["stdout"], "1.0\n");
    // The same by a variable of the sandbox, which the tool knows.
    let set = json!({"action": "set", "variables": {"PIP_INDEX_URL": "http://127.0.0.1:8471/simple"}});
    daemon.post("/v1/sandboxes/box/env", set);
    daemon.succeeds(&["install", "box", "isle-demo==2.0", "--manager", "pip"]);
    assert_eq!(code(&daemon, "box", version)["stdout"], "2.0\n");
    // What code needs is brought before it runs.
    daemon.succeeds(&["reset", "box"]);
    let gone = code(&daemon, "box", json!({"code": "import isle_demo", "language": "python"}));
    assert_eq!(gone["error"]["name"], "ModuleNotFoundError", "a reset takes what was installed: {gone}");
    let server = daemon.exec("box", json!({"command": "cd /workspace && exec python3 -u -m http.server --bind 127.0.0.1 8471 2>> log", "wait": "0s", "env": {"FROM": server["run_id"]}}));
    until("the index answers again", || {
        let asked = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8471/simple/\")'";
        daemon.exec("box", json!({"command": asked}))["state"] == "completed"
    });
    let needs = json!({"code": "import isle_demo; print(isle_demo.version)", "language": "python", "packages": ["isle-demo"], "wait": "100s"});
    assert_eq!(code(&daemon, "box", needs)["stdout"], "2.0\n");
    let error = daemon.refused(
        "POST",
        "/v1/sandboxes/box/code",
        Some(&json!({"code": "open('ran', 'w')", "language": "python", "packages": ["isle-no-such-thing"]})),
    );
    assert_eq!(error["code"], "INSTALL_FAILED", "{error}");
    assert!(error["details"]["output"].as_str().unwrap().contains("isle-no-such-thing"), "{error}");
    assert!(!daemon.shell("box", "ls").contains("ran"), "the code was not run");
    daemon.post(&format!("/v1/runs/{}/kill", server["run_id"].as_str().unwrap()), json!({"force": true}));
}

#[test]
fn a_one_shot_gets_its_packages_before_its_code_runs() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    require!(needs_pip(&daemon));
    let body = json!({
        "code": "print('ran')", "language": "python", "packages": ["isle-no-such-thing"], "wait": "100s",
    });
    let error = daemon.refused("POST", "/v1/runs", Some(&body));
    assert_eq!(error["code"], "INSTALL_FAILED", "{error}");
    assert!(error["next_steps"].to_string().contains("no network"), "{error}");
    let shell = json!({"command": "true", "packages": ["x"]});
    assert_eq!(daemon.refused("POST", "/v1/runs", Some(&shell))["code"], "INVALID_ARGUMENT");
    let bad = json!({"code": "1", "language": "python", "packages": ["--pre"]});
    assert_eq!(daemon.refused("POST", "/v1/runs", Some(&bad))["code"], "INVALID_ARGUMENT");
    let given = json!({
        "code": "import isle_demo; print(isle_demo.version)", "language": "python", "wait": "100s",
        "packages": ["./isle_demo-1.0-py3-none-any.whl"],
        "files": [{"path": "isle_demo-1.0-py3-none-any.whl", "content": file_of_box(&daemon), "encoding": "base64"}],
    });
    assert_eq!(daemon.post("/v1/runs", given)["stdout"], "1.0\n");
}

/// A wheel, made in one sandbox for another.
fn file_of_box(daemon: &TestDaemon) -> String {
    wheel(daemon, "box", "isle_demo", "1.0");
    let path = "/v1/sandboxes/box/files/read?path=isle_demo-1.0-py3-none-any.whl&encoding=base64";
    daemon.get(path)["content"].as_str().unwrap().to_owned()
}

#[test]
fn options_addresses_and_shell_text_are_refused_before_any_tool_sees_them() {
    let daemon = TestDaemon::start();
    let cases = [
        json!({"packages": []}),
        json!({"packages": ["--index-url=http://x.example"], "manager": "pip"}),
        json!({"packages": ["-e", "."], "manager": "pip"}),
        json!({"packages": ["good", "a;id"], "manager": "pip"}),
        json!({"packages": ["$(id)"], "manager": "npm"}),
        json!({"packages": ["../up.tgz"], "manager": "npm"}),
        json!({"packages": ["user/repository"], "manager": "npm"}),
        json!({"packages": ["https://x.example/a.whl"], "manager": "pip"}),
        json!({"packages": ["file:///etc/passwd"], "manager": "pip", "allow_urls": true}),
        json!({"packages": ["a"], "manager": "cargo"}),
        json!({"packages": ["a"], "manager": "pip", "index": "file:///x"}),
        json!({"packages": ["a b", "c;d"]}),
    ];
    for body in cases {
        let error = daemon.refused("POST", "/v1/sandboxes/box/install", Some(&body));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{body}: {error}");
    }
    for manager in ["apt", "apk"] {
        let body = json!({"packages": ["jq"], "manager": manager});
        let error = daemon.refused("POST", "/v1/sandboxes/box/install", Some(&body));
        assert_eq!(error["code"], "RUNTIME_NOT_AVAILABLE", "{error}");
        assert!(error["next_steps"].to_string().contains("on the host"), "{error}");
    }
    assert!(daemon.names().is_empty(), "nothing was made for any of them");
    let output = finish(&mut daemon.isle(&["install", "box", "--", "--pre"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("error[INVALID_ARGUMENT]"), "{said}");
}

#[test]
fn a_package_that_cannot_be_fetched_says_what_to_do() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    require!(needs_pip(&daemon));
    let output =
        finish(&mut daemon.isle(&["install", "box", "isle-no-such-thing", "--manager", "pip", "--json"]));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{answer}");
    assert_eq!(
        (&answer["installed"], &answer["run"]["state"]),
        (&json!(false), &json!("failed")),
        "{answer}"
    );
    assert!(answer["hint"].as_str().is_some_and(|words| words.contains("no network")), "{answer}");
}
