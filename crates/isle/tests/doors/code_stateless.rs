//! Code without a context: quick, because an interpreter is warm, and as if none had been.

use serde_json::{Value, json};

use super::contexts::{both_tiers, code, needs};
use crate::harness::{TestDaemon, processes_with, require, until};

fn python(daemon: &TestDaemon, sandbox: &str, text: &str) -> Value {
    code(daemon, sandbox, json!({"code": text, "language": "python"}))
}

#[test]
fn nothing_of_one_stateless_call_reaches_the_next() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        // The first starts the fork server, so that the second and third are its children.
        python(&daemon, sandbox, "print(1)");
        let spoil = "import builtins, json, os, random, signal, sys, threading\n\
            x = 1\nbuiltins.leaked = 1\njson.leaked = 1\nsys.modules['leaked'] = json\nsys.path.append('/leaked')\n\
            os.environ['LEAKED'] = '1'\nos.chdir('/tmp')\nos.umask(0o077)\n\
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
            random.seed(5)\nleft = os.open('/dev/null', os.O_RDONLY)\nsys.setrecursionlimit(77)\nprint(os.getpid())";
        let spoiled = python(&daemon, sandbox, spoil);
        assert_eq!(spoiled["state"], "completed", "{spoiled}");
        let look = "import builtins, json, os, random, signal, sys\n\
            print([hasattr(builtins, 'leaked'), hasattr(json, 'leaked'), 'leaked' in sys.modules,\n\
                '/leaked' in sys.path, 'LEAKED' in os.environ, 'x' in globals(),\n\
                signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL,\n\
                signal.getsignal(signal.SIGINT) != signal.default_int_handler,\n\
                sys.getrecursionlimit() == 77, os.umask(0o022) == 0o077])\n\
            def fds():\n try: return sorted(int(n) for n in os.listdir('/dev/fd') if os.path.exists(f'/dev/fd/{n}'))\n except OSError: return []\n\
            print(fds(), os.get_inheritable(3))\n\
            print(os.environ.get('ISLE_WORKSPACE', '/workspace') == os.getcwd(), __name__, sys.argv)\n\
            print(random.random())";
        let first = python(&daemon, sandbox, look);
        let second = python(&daemon, sandbox, look);
        let lines = |run: &Value| -> Vec<String> {
            run["stdout"].as_str().unwrap_or_else(|| panic!("{run}")).lines().map(str::to_owned).collect()
        };
        assert_eq!((&first["stderr"], &second["stderr"]), (&json!(""), &json!("")));
        let (first, second) = (lines(&first), lines(&second));
        assert_eq!(first[0], format!("[{}]", ["False"; 10].join(", ")), "in {sandbox}");
        if sandbox == "box" {
            // Two are the interpreter's own and closed to whatever it starts.
            assert_eq!(first[1], "[0, 1, 2, 3, 4] False", "open descriptors");
        }
        assert_eq!(first[2], "True __main__ ['-c']");
        assert_ne!(first[3], second[3], "random numbers differ from call to call");
    }
}

#[test]
fn a_stateless_call_ends_as_python_ends() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        python(&daemon, sandbox, "print(1)");
        let text = "import atexit, threading, time\natexit.register(lambda: print('at exit'))\n\
            class Last:\n    def __del__(self): print('finalised')\nlast = Last()\n\
            f = open('unflushed.txt', 'w')\nf.write('all of it')\n\
            threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\nprint('main')";
        let run = python(&daemon, sandbox, text);
        assert_eq!(run["stdout"], "main\nthread\nat exit\nfinalised\n", "{run}");
        let kept = daemon.exec(sandbox, json!({"command": "cat unflushed.txt"}));
        assert_eq!(kept["stdout"], "all of it", "{kept}");
        let left = python(&daemon, sandbox, "import sys\nsys.exit('why')");
        assert_eq!((&left["exit_code"], &left["stderr"]), (&json!(1), &json!("why\n")), "{left}");
        let input =
            code(&daemon, sandbox, json!({"code": "print(input())", "language": "python", "stdin": "in\n"}));
        assert_eq!(input["stdout"], "in\n", "{input}");
        let given = code(
            &daemon,
            sandbox,
            json!({"code": "import sys\nprint(sys.flags.utf8_mode)", "language": "python", "env": {"PYTHONUTF8": "1"}}),
        );
        assert_eq!(given["stdout"], "1\n", "variables Python reads at its start count: {given}");
        let limited = json!({"code": "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])", "language": "python", "limits": {"open_files": 64}});
        assert_eq!(code(&daemon, sandbox, limited)["stdout"], "64\n", "limits of one call hold");
        let awaited = python(&daemon, sandbox, "import asyncio\nawait asyncio.sleep(0, 9)");
        assert_eq!(awaited["results"][0]["json"], 9, "{awaited}");
    }
}

#[test]
fn nothing_a_stateless_call_started_outlives_it() {
    let daemon = TestDaemon::start();
    for (number, sandbox) in (0..).zip(both_tiers(&daemon)) {
        require!(needs(&daemon, "python3"));
        python(&daemon, sandbox, "print(1)");
        let marker = format!("{}{:07}", 82_000 + number, std::process::id());
        // Forked twice, in a session of its own: an orphan nobody could find by group or parent.
        let daemonise = format!(
            "import os, subprocess\nsubprocess.run(['sh', '-c', '(setsid setsid sleep {marker} &) &'])\nsubprocess.Popen(['sleep', '{marker}'])\nprint('done')"
        );
        let run = python(&daemon, sandbox, &daemonise);
        assert_eq!(run["state"], "completed", "{run}");
        assert!(processes_with(&marker).is_empty(), "gone before the answer");
        let hang = format!("{daemonise}\nwhile True: pass");
        let late = code(&daemon, sandbox, json!({"code": hang, "language": "python", "timeout": "1s"}));
        assert_eq!(late["state"], "timed_out", "{late}");
        until("the whole tree is gone", || processes_with(&marker).is_empty());
        // Others go on: a call that was running beside it, and the next.
        assert_eq!(python(&daemon, sandbox, "print(2)")["stdout"], "2\n");
    }
}

#[test]
fn a_killed_fork_server_is_told_and_replaced() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        python(&daemon, sandbox, "print(1)");
        let run = python(
            &daemon,
            sandbox,
            "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)",
        );
        assert_eq!(run["state"], "killed", "{run}");
        assert_eq!(python(&daemon, sandbox, "print(2)")["stdout"], "2\n");
    }
}

#[test]
fn stateless_node_calls_share_nothing_and_end_as_node_ends() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "node"));
        let node = |text: &str| code(&daemon, sandbox, json!({"code": text, "language": "node"}));
        node("console.log(1)");
        for _ in 0..2 {
            let run = node(
                "const was = [globalThis.leaked, process.env.LEAKED, process.listenerCount('SIGUSR2')].join(); \
                 globalThis.leaked = 1; process.env.LEAKED = '1'; process.on('SIGUSR2', () => {}); process.chdir('/tmp'); \
                 setTimeout(() => { console.log('later', was); process.exit(0) }, 5); was",
            );
            assert_eq!(run["stdout"], "later ,,0\n", "{run}");
            assert_eq!(run["results"][0]["json"], ",,0", "{run}");
        }
        let failed = node("setTimeout(() => { throw new Error('late') }, 5)");
        assert_eq!((&failed["state"], &failed["exit_code"]), (&json!("failed"), &json!(1)), "{failed}");
        assert!(failed["stderr"].as_str().unwrap().contains("Error: late"), "{failed}");
        let input = "let all = ''; for await (const part of process.stdin) all += part; all.length";
        let read =
            code(&daemon, sandbox, json!({"code": input, "language": "node", "stdin": "x".repeat(200_000)}));
        assert_eq!(read["results"][0]["json"], 200_000, "{read}");
    }
}

#[test]
fn the_end_of_a_stateless_node_call_is_told_when_everything_of_it_is_over() {
    let daemon = TestDaemon::start();
    for (number, sandbox) in (0..).zip(both_tiers(&daemon)) {
        require!(needs(&daemon, "node"));
        let node = |text: &str| code(&daemon, sandbox, json!({"code": text, "language": "node"}));
        node("1");
        for (text, code, stdout) in [
            (
                "process.on('exit', (code) => console.log('left with', code)); process.exit(7)",
                7,
                "left with 7\n",
            ),
            ("process.on('exit', () => { console.log('last'); process.exitCode = 5 })", 5, "last\n"),
            ("process.exitCode = 3; console.log('set')", 3, "set\n"),
            (
                "process.on('beforeExit', () => console.log('before')); setTimeout(() => console.log('timer'), 20)",
                0,
                "timer\nbefore\n",
            ),
            ("process.once('beforeExit', () => setImmediate(() => console.log('more')))", 0, "more\n"),
            ("Promise.reject(new Error('nobody caught this'))", 1, ""),
            ("process.reallyExit(300)", 44, ""),
        ] {
            let run = node(text);
            assert_eq!((&run["exit_code"], &run["stdout"]), (&json!(code), &json!(stdout)), "{text}: {run}");
        }
        let much =
            node("process.stdout.write('x'.repeat(3_000_000)); process.stderr.write('y'.repeat(300_000))");
        assert_eq!(
            (&much["stdout_bytes"], &much["stderr_bytes"]),
            (&json!(3_000_000), &json!(300_000)),
            "{much}"
        );
        // What it started ends with it, before the answer.
        let marker = format!("{}{:07}", 84_000 + number, std::process::id());
        let spawn = "require('child_process').spawn";
        let left = node(&format!(
            "{spawn}('sh', ['-c', '(setsid sleep {marker} &) & sleep {marker}'], {{ detached: true, stdio: 'ignore' }}).unref(); \
             await new Promise((done) => setTimeout(done, 50)); process.exit(0)"
        ));
        assert_eq!(left["exit_code"], 0, "{left}");
        assert!(processes_with(&marker).is_empty(), "gone before the answer");
        // A script that says by itself that it is over does not go on.
        let liar = node(&format!(
            "process.title = 'liar-{marker}'; require('fs').writeSync(4, Buffer.from([68, 0, 0, 0, 1, 48])); for (;;);"
        ));
        assert_eq!(liar["exit_code"], 0, "{liar}");
        until("it is gone", || processes_with(&format!("liar-{marker}")).is_empty());
        assert_eq!(node("console.log(2)")["stdout"], "2\n");
    }
}
