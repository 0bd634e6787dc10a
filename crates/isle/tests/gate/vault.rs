//! Attacks on the vault: programs that print a value in every promised form and across every border, that
//! ask whoever could have it, and crashes of those who hold it. Each is seen to succeed where nothing guards.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, per_connection, require, until_some};
use crate::servers::needs;

const VALUE: &str = "s3cr3t/\"quoted\" v\u{e4}lue";
const MARK: &str = "[secret KEY]";

fn start() -> TestDaemon {
    let daemon = TestDaemon::start();
    daemon.post("/v1/secrets", json!({ "name": "KEY", "value": VALUE, "hosts": ["api.test"] }));
    daemon
}

/// Prints the value in each promised form, and behind so many bytes that it lies across a border.
const EMIT: &str = r#"
import base64, json, os, sys, urllib.parse
value = os.environ['KEY']
raw = value.encode()
forms = {
    'raw': raw,
    'hex': raw.hex().encode(),
    'capital hex': raw.hex().upper().encode(),
    'url': urllib.parse.quote(value, safe='').encode(),
    'url with slashes': urllib.parse.quote(value).encode(),
    'json': json.dumps(value)[1:-1].encode(),
    'json of letters': json.dumps(value, ensure_ascii=False)[1:-1].encode(),
}
for shift in range(3):
    forms[f'base64 {shift}'] = base64.b64encode(b'x' * shift + raw + b'y')
    forms[f'base64 for urls {shift}'] = base64.urlsafe_b64encode(b'x' * shift + raw + b'y')
for name, form in forms.items():
    sys.stdout.buffer.write(name.encode() + b': ' + form + b'\n')
sys.stdout.flush()
for border in (4096, 8192, 65536):
    for before in range(len(raw) + 1):
        sys.stderr.buffer.write(b'.' * (border - before) + raw + b'\n')
        sys.stderr.flush()
"#;

per_connection!(no_promised_form_of_a_value_and_no_border_lets_it_out);

fn no_promised_form_of_a_value_and_no_border_lets_it_out() {
    let daemon = start();
    require!(needs(&daemon, "python3"));
    // Where nothing guards, all of it is there.
    let plain = finish(Command::new("python3").args(["-c", EMIT]).env("KEY", VALUE));
    let forms: Vec<String> = String::from_utf8(plain.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(forms.len(), 13, "{forms:?}");
    assert!(String::from_utf8_lossy(&plain.stderr).contains(VALUE));
    let run = daemon.exec("box", json!({ "argv": ["python3", "-c", EMIT], "expose_secrets": ["KEY"] }));
    assert_eq!(run["exit_code"], 0, "{run}");
    let shown: Vec<&str> = run["stdout"].as_str().unwrap().lines().collect();
    for (form, shown) in forms.iter().zip(&shown) {
        let (name, form) = form.split_once(": ").unwrap();
        assert!(shown.contains(MARK), "{name}: {shown}");
        // What stands around it in base64 may be left: a few letters at each end.
        let inner: String = form.chars().skip(4).take(form.chars().count() - 8).collect();
        assert!(!shown.contains(&inner), "{name}: {shown}");
    }
    // The result shows the ends of what is long; the log has more of it. The value is in neither.
    let log = daemon.get(&format!("/v1/runs/{}/logs", run["run_id"].as_str().unwrap()));
    for text in [&run["stderr"], &log] {
        let text = text.to_string();
        assert!(
            text.contains(MARK) && !text.contains("s3cr3t"),
            "{}",
            &text[text.len().saturating_sub(300)..]
        );
    }
}

per_connection!(what_may_see_a_placeholder_alone_never_finds_the_value);

fn what_may_see_a_placeholder_alone_never_finds_the_value() {
    let daemon = start();
    require!(needs(&daemon, "python3"));
    // Everything a program can read of itself, of others, and of the way to the daemon.
    let search = r#"
import glob, json, os
found = []
own = [f'/proc/{name}/mem' for name in ('self', 'thread-self', os.getpid())]
for path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/mem') \
        + glob.glob('/run/**', recursive=True) + glob.glob('/tmp/**', recursive=True) + glob.glob('/etc/isle/*'):
    # The search has what it looks for in its own memory.
    if path in own: continue
    try:
        with open(path, 'rb') as file:
            if path.endswith('/mem'):
                maps = open(path[:-3] + 'maps').read().splitlines()
                for line in maps:
                    start, end = (int(part, 16) for part in line.split()[0].split('-'))
                    if end - start > 1 << 26 or 'r' not in line.split()[1]: continue
                    try:
                        file.seek(start)
                        if NEEDLE in file.read(end - start): found.append(path)
                    except (OSError, ValueError, OverflowError): pass
            elif NEEDLE in file.read(1 << 20): found.append(path)
    except OSError: pass
print(json.dumps(sorted(set(found))))"#;
    // The search itself knows the needle in pieces only.
    let search =
        search.replace("NEEDLE", "bytes([0x73, 0x33, 0x63, 0x72, 0x33, 0x74]) + b'/' + bytes([34]) + b'quo'");
    let body = |how: &str| json!({ "argv": ["python3", "-c", search], how: ["KEY"], "timeout": "120s" });
    let run = daemon.exec("box", body("secrets"));
    assert_eq!(run["stdout"], "[]\n", "{run}");
    // The control: an exposed one is found, in the environment at least.
    let run = daemon.exec("box", body("expose_secrets"));
    assert!(run["stdout"].as_str().unwrap().contains("/environ"), "{run}");
}

/// Lets children leave cores as large as they like.
fn let_cores_be() -> bool {
    let mut limit = getrlimit(Resource::Core);
    limit.current = limit.maximum;
    setrlimit(Resource::Core, limit).is_ok() && limit.current != Some(0)
}

per_connection!(a_crash_of_whoever_holds_a_value_leaves_no_core);

fn a_crash_of_whoever_holds_a_value_leaves_no_core() {
    let directory = tempfile::tempdir().unwrap();
    let allowed = let_cores_be();
    let crash = finish(Command::new("sh").args(["-c", "kill -SEGV $$"]).current_dir(directory.path()));
    assert_eq!(crash.status.signal(), Some(11));
    if !allowed || !crash.status.core_dumped() {
        println!("the control leaves no core either: this host makes none of anything");
    }
    let mut daemon = start();
    let run = daemon.exec("box", json!({ "command": "kill -SEGV $$", "expose_secrets": ["KEY"] }));
    assert_eq!(run["signal"], 11, "{run}");
    let left = daemon.shell("box", "find /workspace /home/sandbox /tmp -name 'core*'; ulimit -c");
    assert_eq!(left, "0\n", "nothing but the limit");
    let status = daemon.crash(Signal::SEGV);
    assert_eq!((status.signal(), status.core_dumped()), (Some(11), false), "{status}");
    for place in [daemon.home().state_dir(), daemon.home().runtime_dir()] {
        let cores: Vec<_> = std::fs::read_dir(&place)
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("core"))
            .collect();
        assert!(cores.is_empty(), "{cores:?}");
    }
    daemon.launch();
    let shown: Value = daemon.exec("box", json!({ "command": "echo $KEY", "expose_secrets": ["KEY"] }));
    assert_eq!(shown["stdout"], format!("{MARK}\n"), "{shown}");
    until_some("it is served again", || daemon.get("/v1/secrets")["secrets"].get(0).cloned());
}
