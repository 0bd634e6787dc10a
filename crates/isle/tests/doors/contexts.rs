//! Contexts: interpreters that remember, in both tiers.

use std::thread;

use serde_json::{Value, json};

use crate::harness::http::Events;
use crate::harness::{Missing, TestDaemon, processes_with, require, tiers, until};

/// Code in a sandbox, which must be answered.
pub(crate) fn code(daemon: &TestDaemon, sandbox: &str, arguments: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/code"), arguments)
}

/// A sandbox of each tier there is.
pub(crate) fn both_tiers(daemon: &TestDaemon) -> Vec<&'static str> {
    let names = tiers().iter().map(|&tier| if tier == "container" { "box" } else { "plain" });
    for (tier, name) in tiers().iter().zip(names.clone()) {
        daemon.post("/v1/sandboxes", json!({"sandbox": name, "tier": tier, "allow_downgrade": true}));
    }
    names.collect()
}

/// Whether a sandbox has a program, for a part of a test.
pub(crate) fn has(daemon: &TestDaemon, program: &str) -> bool {
    daemon.has_program("box", program)
}

/// A program that a sandbox must have for a test.
pub(crate) fn needs(daemon: &TestDaemon, program: &str) -> Result<(), Missing> {
    daemon.needs_program("box", program)
}

fn contexts(daemon: &TestDaemon, sandbox: &str) -> Vec<Value> {
    daemon.get(&format!("/v1/sandboxes/{sandbox}/contexts"))["contexts"].as_array().unwrap().clone()
}

/// Starts code that goes on; gives its run.
fn begin(daemon: &TestDaemon, sandbox: &str, mut arguments: Value) -> String {
    arguments["wait"] = json!("0s");
    code(daemon, sandbox, arguments)["run_id"].as_str().unwrap().to_owned()
}

fn wait(daemon: &TestDaemon, run: &str) -> Value {
    daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "120s"}))
}

/// Waits until a run has printed something.
fn printed(daemon: &TestDaemon, run: &str, text: &str) {
    until("the code has printed", || {
        daemon.get(&format!("/v1/runs/{run}/logs"))["stdout"]["text"]
            .as_str()
            .is_some_and(|all| all.contains(text))
    });
}

#[test]
fn python_remembers_variables_imports_and_the_directory() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        let run =
            |text: &str| code(&daemon, sandbox, json!({"code": text, "context": "c", "language": "python"}));
        let first = run("import math, os\nx = 20\nos.makedirs('sub', exist_ok=True)\nos.chdir('sub')");
        assert_eq!(
            (&first["state"], &first["context"]["state"]),
            (&json!("completed"), &json!("new")),
            "{first}"
        );
        let second = run("print(math.floor(x * 2.1), os.path.basename(os.getcwd()))\nx + 1");
        assert_eq!(second["stdout"], "42 sub\n", "{second}");
        assert_eq!(second["results"][0]["text"], "21", "{second}");
        assert_eq!((&second["context"]["name"], &second["context"]["state"]), (&json!("c"), &json!("kept")));
        let awaited = run("import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, x)");
        assert_eq!(awaited["results"][0]["json"], 20, "{awaited}");
        // Left out, the language is the context's own.
        let detected = code(&daemon, sandbox, json!({"code": "x", "context": "c"}));
        assert_eq!(detected["results"][0]["text"], "20", "{detected}");
        let given =
            json!({"code": "os.environ['A'], os.getcwd()", "context": "c", "env": {"A": "b"}, "cwd": "/tmp"});
        let given = code(&daemon, sandbox, given);
        assert_eq!(given["results"][0]["json"][0], "b", "{given}");
    }
}

#[test]
fn node_remembers_variables_and_the_directory() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "node"));
        let run =
            |text: &str| code(&daemon, sandbox, json!({"code": text, "context": "n", "language": "node"}));
        let first = run(
            "const x = 20; let y = 1; const fs = require('fs'); fs.mkdirSync('sub', {recursive: true}); process.chdir('sub')",
        );
        assert_eq!(first["state"], "completed", "{first}");
        let second = run("const x = 21; console.log(require('path').basename(process.cwd())); x * 2");
        assert_eq!(
            (&second["stdout"], &second["results"][0]["json"]),
            (&json!("sub\n"), &json!(42)),
            "{second}"
        );
        let awaited = run(
            "const os = await import('os'); await new Promise((r) => setTimeout(() => r(typeof os.cpus + y), 5))",
        );
        assert_eq!(awaited["results"][0]["json"], "function1", "{awaited}");
        let failed = run("function f() { throw new TypeError('bad') }\nf()");
        assert_eq!(failed["error"]["name"], "TypeError", "{failed}");
        assert_eq!(failed["error"]["traceback"][0]["function"], "f", "{failed}");
        assert_eq!(run("y")["results"][0]["json"], 1, "an exception leaves the context alone");
    }
}

#[test]
fn a_shell_remembers_variables_functions_and_the_directory() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let run =
            |text: &str| code(&daemon, sandbox, json!({"code": text, "context": "s", "language": "shell"}));
        let first = run("x='a  b'\"'\"'$\\'\nf() { echo \"f:$1\"; }\nmkdir -p sub && cd sub");
        assert_eq!(first["state"], "completed", "{first}");
        let second = run("f \"$x\"; basename \"$PWD\"; false");
        assert_eq!(second["stdout"], "f:a  b'$\\\nsub\n", "{second}");
        assert_eq!((&second["state"], &second["exit_code"]), (&json!("failed"), &json!(1)), "{second}");
        let syntax = run("if then");
        assert_eq!(syntax["state"], "failed", "{syntax}");
        assert_eq!(syntax["context"]["state"], "kept", "{syntax}");
        let left = run("exit 7");
        assert_eq!((&left["exit_code"], &left["context"]["state"]), (&json!(7), &json!("ended")), "{left}");
        assert_eq!(run("echo \"[$x]\"")["stdout"], "[]\n", "a new shell");
    }
}

#[test]
fn an_interrupt_ends_the_call_and_leaves_the_context() {
    let daemon = TestDaemon::start();
    let cases = [
        ("python3", "python", "x = 7", "print('on', flush=True)\nwhile True: pass", "print(x)"),
        ("node", "node", "let x = 7", "console.log('on'); while (true) {}", "console.log(x)"),
        // In the middle of printing.
        (
            "node",
            "node",
            "let x = 7",
            "require('fs').writeSync(1, 'on\\n'); process.stdout._write = () => { while (true) {} }; console.log('x')",
            "console.log(x)",
        ),
        ("bash", "shell", "x=7", "echo on; while true; do sleep 0.1; done; echo after", "echo $x"),
    ];
    for sandbox in both_tiers(&daemon) {
        for (program, language, set, hang, show) in cases {
            if !has(&daemon, program) {
                continue;
            }
            let arguments = |text: &str| json!({"code": text, "context": language, "language": language});
            code(&daemon, sandbox, arguments(set));
            let run = begin(&daemon, sandbox, arguments(hang));
            printed(&daemon, &run, "on");
            daemon.post(&format!("/v1/sandboxes/{sandbox}/contexts/{language}/interrupt"), json!({}));
            let ended = wait(&daemon, &run);
            assert_eq!((&ended["state"], &ended["exit_code"]), (&json!("failed"), &json!(130)), "{ended}");
            assert_eq!(ended["stdout"], "on\n", "{ended}");
            assert!(ended["note"].as_str().unwrap().contains("lives on"), "{ended}");
            let shown = code(&daemon, sandbox, arguments(show));
            assert_eq!(shown["stdout"], "7\n", "{language} in {sandbox}: {shown}");
            // So does running out of time.
            let mut late = arguments(hang);
            late["timeout"] = json!("1s");
            let late = code(&daemon, sandbox, late);
            assert_eq!(
                (&late["state"], &late["context"]["state"]),
                (&json!("timed_out"), &json!("kept")),
                "{late}"
            );
            let shown = code(&daemon, sandbox, arguments(show));
            assert_eq!(shown["stdout"], "7\n", "{language} in {sandbox}: {shown}");
        }
    }
}

#[test]
fn an_interpreter_that_hangs_or_crashes_says_so_and_the_next_call_works() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        let arguments =
            |text: &str| json!({"code": text, "context": "c", "language": "python", "timeout": "2s"});
        code(&daemon, sandbox, arguments("x = 1"));
        let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
        let hung = code(&daemon, sandbox, arguments(deaf));
        assert_eq!(
            (&hung["state"], &hung["context"]["state"]),
            (&json!("timed_out"), &json!("ended")),
            "{hung}"
        );
        assert!(hung["note"].as_str().unwrap().contains("starts anew"), "{hung}");
        let next = code(&daemon, sandbox, arguments("'x' in globals()"));
        assert_eq!(
            (&next["results"][0]["json"], &next["context"]["state"]),
            (&json!(false), &json!("new")),
            "{next}"
        );
        let crash = code(
            &daemon,
            sandbox,
            arguments("import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 11)"),
        );
        assert_eq!((&crash["state"], &crash["signal"]), (&json!("killed"), &json!(11)), "{crash}");
        assert_eq!(crash["stdout"], "last words\n", "{crash}");
        assert_eq!(crash["context"]["state"], "ended", "{crash}");
        assert_eq!(code(&daemon, sandbox, arguments("1 + 1"))["results"][0]["text"], "2");
    }
}

#[test]
fn restarting_and_removing_end_everything_of_a_context_and_keep_files() {
    let daemon = TestDaemon::start();
    for (number, sandbox) in (0..).zip(both_tiers(&daemon)) {
        require!(needs(&daemon, "python3"));
        let marker = format!("{}{:07}", 81_000 + number, std::process::id());
        let start = format!(
            "import subprocess\nx = 1\nopen('kept.txt', 'w').write('kept')\nsubprocess.Popen(['setsid', 'sleep', '{marker}'])"
        );
        let run =
            |text: &str| code(&daemon, sandbox, json!({"code": text, "context": "c", "language": "python"}));
        run(&start);
        until("what it started runs on", || !processes_with(&marker).is_empty());
        assert_eq!(run("print(x)")["stdout"], "1\n");
        assert!(!processes_with(&marker).is_empty(), "what a call starts in a context stays");
        let listed = contexts(&daemon, sandbox);
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0]["name"], &listed[0]["language"]), (&json!("c"), &json!("python")));
        assert_eq!((&listed[0]["alive"], &listed[0]["calls"]), (&json!(true), &json!(2)));
        let path = format!("/v1/sandboxes/{sandbox}/contexts/c");
        daemon.post(&format!("{path}/restart"), json!({}));
        until("what it started is gone", || processes_with(&marker).is_empty());
        assert_eq!(contexts(&daemon, sandbox)[0]["alive"], false);
        let anew = run("print(open('kept.txt').read(), 'x' in globals())");
        assert_eq!(
            (&anew["stdout"], &anew["context"]["state"]),
            (&json!("kept False\n"), &json!("new")),
            "{anew}"
        );
        assert_eq!(daemon.http("DELETE", &path, None).status, 200);
        assert!(contexts(&daemon, sandbox).is_empty());
        assert_eq!(daemon.refused("DELETE", &path, None)["code"], "CONTEXT_NOT_FOUND");
    }
}

#[test]
fn contexts_run_side_by_side_and_calls_in_one_wait_for_each_other() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(needs(&daemon, "python3"));
    // Each waits for a file the other writes: one after the other they would never end.
    let meet = |own: &str, other: &str| {
        format!(
            "import os, time\nopen('{own}', 'w').close()\nwhile not os.path.exists('{other}'): time.sleep(0.01)\nprint('met')"
        )
    };
    thread::scope(|scope| {
        let both = [("one", meet("a", "b")), ("two", meet("b", "a"))].map(|(name, text)| {
            let daemon = &daemon;
            scope.spawn(move || {
                code(
                    daemon,
                    "box",
                    json!({"code": text, "context": name, "language": "python", "timeout": "60s"}),
                )
            })
        });
        for one in both {
            assert_eq!(one.join().unwrap()["stdout"], "met\n");
        }
    });
    let add = json!({"code": "n = globals().get('n', 0) + 1", "context": "one", "language": "python"});
    thread::scope(|scope| {
        for _ in 0..8 {
            let (daemon, add) = (&daemon, add.clone());
            scope.spawn(move || assert_eq!(code(daemon, "box", add)["state"], "completed"));
        }
    });
    assert_eq!(code(&daemon, "box", json!({"code": "n", "context": "one"}))["results"][0]["json"], 8);
}

#[test]
fn output_of_code_streams_while_it_runs() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(needs(&daemon, "python3"));
    for context in [json!(null), json!("c")] {
        let text = "import os, time\nprint('first')\nos.system('echo from a child')\nwhile not os.path.exists('go'): time.sleep(0.01)\nos.remove('go')\nprint('last')";
        let run = begin(&daemon, "box", json!({"code": text, "context": context, "language": "python"}));
        let mut events = Events::open(&daemon.socket(), &format!("GET /v1/runs/{run}/events"), &[], "");
        let mut heard = String::new();
        while !heard.contains("from a child") {
            let event = events.next().unwrap();
            heard.push_str(event.data["data"].as_str().unwrap_or_default());
        }
        assert!(heard.starts_with("first\n"), "{heard:?}");
        daemon.shell("box", "touch go");
        assert_eq!(wait(&daemon, &run)["stdout"], "first\nfrom a child\nlast\n");
    }
}

#[test]
fn contexts_survive_the_daemon_with_what_runs_in_them() {
    let mut daemon = TestDaemon::start();
    let sandboxes = both_tiers(&daemon);
    for sandbox in &sandboxes {
        require!(needs(&daemon, "python3"));
        code(&daemon, sandbox, json!({"code": "x = 'before'", "context": "c", "language": "python"}));
    }
    let text = "import os, time\nprint('on', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n{'x': x}";
    let run = begin(&daemon, "box", json!({"code": text, "context": "c"}));
    printed(&daemon, &run, "on");
    daemon.kill();
    daemon.launch();
    daemon.shell("box", "touch go");
    let ended = wait(&daemon, &run);
    assert_eq!((&ended["state"], &ended["stdout"]), (&json!("completed"), &json!("on\n")), "{ended}");
    assert_eq!(ended["results"][0]["json"], json!({"x": "before"}), "{ended}");
    for sandbox in sandboxes {
        let kept = code(&daemon, sandbox, json!({"code": "x", "context": "c"}));
        assert_eq!(
            (&kept["results"][0]["json"], &kept["context"]["state"]),
            (&json!("before"), &json!("kept")),
            "{kept}"
        );
    }
}

#[test]
fn what_a_context_cannot_do_is_refused_with_the_reason() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(needs(&daemon, "python3"));
    code(&daemon, "box", json!({"code": "x = 1", "context": "c", "language": "python"}));
    let refused = |arguments: Value| {
        daemon.refused("POST", "/v1/sandboxes/box/code", Some(&arguments))["code"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(refused(json!({"code": "x", "context": "c", "language": "node"})), "INVALID_ARGUMENT");
    assert_eq!(refused(json!({"code": "x", "context": "c", "user": "root"})), "INVALID_ARGUMENT");
    assert_eq!(refused(json!({"code": "x", "context": "c", "stdin": "in"})), "INVALID_ARGUMENT");
    assert_eq!(
        refused(json!({"code": "x", "context": "c", "limits": {"open_files": 64}})),
        "INVALID_ARGUMENT"
    );
    assert_eq!(refused(json!({"code": "x", "context": "../c"})), "INVALID_NAME");
    assert_eq!(refused(json!({"code": "x", "context": "c", "cwd": "/nowhere"})), "FILE_NOT_FOUND");
    assert_eq!(code(&daemon, "box", json!({"code": "x", "context": "c"}))["results"][0]["json"], 1);
    let missing = daemon.refused("POST", "/v1/sandboxes/box/contexts/none/interrupt", Some(&json!({})));
    assert_eq!(missing["code"], "CONTEXT_NOT_FOUND");
    let missing = daemon.refused("GET", "/v1/sandboxes/nobody/contexts", None);
    assert_eq!(missing["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn the_command_line_runs_code_and_looks_after_contexts() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(needs(&daemon, "python3"));
    daemon.succeeds(&["code", "box", "--context", "c", "--lang", "python", "x = 20"]);
    assert_eq!(daemon.succeeds(&["code", "box", "-c", "c", "print('hi')\nx + 1"]), "hi\n21\n");
    let listed = daemon.succeeds(&["contexts", "box"]);
    assert!(listed.contains("python") && listed.contains("true"), "{listed}");
    assert_eq!(daemon.succeeds(&["contexts", "box", "--restart", "c"]), "c\n");
    let failed = crate::harness::finish(&mut daemon.isle(&["code", "box", "-c", "c", "x"]));
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("NameError"), "{failed:?}");
    assert_eq!(daemon.succeeds(&["contexts", "box", "--remove", "c"]), "c\n");
    assert!(daemon.succeeds(&["contexts", "box"]).starts_with("No contexts."));
}

#[test]
fn a_sandbox_has_a_bounded_number_of_contexts() {
    let daemon = TestDaemon::start();
    let in_context =
        |number: u32| json!({"code": "true", "language": "shell", "context": format!("c{number}")});
    for number in 0..32 {
        assert_eq!(code(&daemon, "box", in_context(number))["state"], "completed");
    }
    let refused = daemon.refused("POST", "/v1/sandboxes/box/code", Some(&in_context(32)));
    assert_eq!(refused["code"], "LIMIT_REACHED", "{refused}");
    assert_eq!(contexts(&daemon, "box").len(), 32);
}
