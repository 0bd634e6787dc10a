//! The gate itself is hurt, or its grants change under way: everything is denied at once, and nothing
//! hangs.

use serde_json::json;

use crate::harness::{per_connection, processes_with, require, until};
use crate::held::{Way, ends, hold};
use crate::servers::{Server, Serving, allow, needs, python, start};

per_connection!(the_death_of_the_daemon_cuts_every_connection_and_denies_every_other);

fn the_death_of_the_daemon_cuts_every_connection_and_denies_every_other() {
    let (mut daemon, echo) = (start(), Server::echo());
    require!(needs(&daemon, "python3"));
    let port = echo.port;
    allow(&daemon, "box", &[format!("web.test:{port}"), format!("127.0.0.1:{port}")]);
    let marker = hold(&daemon, "box", Way::Name, port, 50);
    daemon.kill();
    // It goes on without a daemon, and comes to its end without one.
    until("it has seen the end", || processes_with(&marker).is_empty());
    assert_eq!(echo.heard().len(), 50, "somebody got through");
    daemon.launch();
    assert_eq!(ends(&daemon, "box"), json!(["gaierror", "ECONNREFUSED"]));
    // The next daemon carries on with the same grants.
    assert_eq!(daemon.shell("box", "getent hosts web.test | cut -c1-7"), "198.18.\n");
}

per_connection!(taking_back_everything_denies_everything_at_once);

fn taking_back_everything_denies_everything_at_once() {
    let (daemon, echo) = (start(), Server::echo());
    require!(needs(&daemon, "python3"));
    let port = echo.port;
    let hosts = [format!("web.test:{port}"), format!("127.0.0.1:{port}")];
    for which in 0..2 {
        let sandbox = format!("box-{which}");
        allow(&daemon, &sandbox, &hosts);
        hold(&daemon, &sandbox, Way::Name, port, 5);
        let before = echo.heard().len();
        // First the name; and in the other sandbox the address it leads to.
        daemon.succeeds(&["revoke", &sandbox, &hosts[which]]);
        let after = ends(&daemon, &sandbox);
        assert!(after[1] == "ECONNRESET" || after[1] == "ended", "{after}");
        assert_eq!(after[0] == "gaierror", which == 0, "{after}");
        daemon.succeeds(&["revoke", &sandbox, &hosts[1 - which]]);
        let ask = "import json, socket\n\
                   try: print(json.dumps(socket.gethostbyname('web.test')))\n\
                   except OSError: print(json.dumps('nothing'))";
        assert_eq!(python(&daemon, &sandbox, ask, &[]), "nothing");
        assert_eq!(echo.heard().len(), before, "somebody got through");
        // And given again it goes again.
        allow(&daemon, &sandbox, &hosts);
        assert!(python(&daemon, &sandbox, ask, &[]).as_str().unwrap().starts_with("198.18."));
    }
}

per_connection!(a_server_that_never_answers_or_is_not_there_holds_nobody_up);

fn a_server_that_never_answers_or_is_not_there_holds_nobody_up() {
    let (daemon, deaf, echo) = (start(), Server::deaf(), Server::echo());
    let (silent, port) = (deaf.port, echo.port);
    let gone = crate::servers::free_port();
    let hosts: Vec<String> = [silent, port, gone].iter().map(|port| format!("web.test:{port}/tcp")).collect();
    allow(&daemon, "box", &hosts);
    allow(&daemon, "box", &[format!("127.0.0.1:{silent},{port},{gone}"), format!("other.test:{gone}/http")]);
    let wait = format!("curl -sS -m 300 http://web.test:{silent}/; echo ended > ended");
    daemon.exec("box", json!({ "command": wait, "wait": "0s" }));
    until("it waits", || deaf.heard().len() == 1);
    let speak = format!("exec 3<>/dev/tcp/web.test/{port}; echo hello >&3; read -r line <&3; echo $line");
    let run = daemon.exec("box", json!({ "argv": ["bash", "-c", speak] }));
    assert_eq!(run["stdout"], "hello\n", "{run}");
    let run = daemon.exec("box", json!({ "command": format!("curl -sS -m 60 http://web.test:{gone}/") }));
    // At once; how far the program had come by then is a matter of luck.
    assert!([7, 52, 56].contains(&run["exit_code"].as_i64().unwrap()), "{run}");
    let run = daemon.exec("box", json!({ "command": format!("curl -sS -m 60 http://other.test:{gone}/") }));
    assert!(run["stdout"].as_str().unwrap().contains("could not be reached"), "{run}");
    daemon.succeeds(&["revoke", "box", &hosts[0]]);
    until("what waits is cut", || daemon.shell("box", "ls").contains("ended"));
}

per_connection!(an_answer_that_breaks_off_is_an_error_to_the_program);

/// The answer breaks off in the middle: the program has to hear of it, or it would take half for the whole.
fn an_answer_that_breaks_off_is_an_error_to_the_program() {
    let daemon = start();
    let directory = tempfile::tempdir().unwrap();
    let script = "
import os, socket, struct
listener = socket.create_server(('127.0.0.1', 0))
open('port.new', 'w').write(str(listener.getsockname()[1])); os.rename('port.new', 'port')
while True:
    stream, _ = listener.accept()
    stream.recv(65536)
    stream.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n' + bytes(100000))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    stream.close()";
    let (_server, port) = Serving::python(directory.path(), script);
    let hosts = ["tcp", "http"].map(|kind| {
        let name = if kind == "tcp" { "web.test" } else { "other.test" };
        format!("{name}:{port}/{kind}")
    });
    allow(&daemon, "box", &hosts);
    allow(&daemon, "box", &[format!("127.0.0.1:{port}")]);
    for name in ["web.test", "other.test"] {
        let run =
            daemon.exec("box", json!({ "command": format!("curl -sS -m 60 -o got http://{name}:{port}/") }));
        assert_eq!(run["exit_code"], 56, "{name}: {run}");
    }
}
