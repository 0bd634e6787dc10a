//! PostgreSQL's own client against its own server. Its protocol negotiates: the client asks in the clear
//! whether it may encrypt, the server agrees with one byte, and only then TLS begins, in the middle of the
//! connection. A cancelled statement is a second connection.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{grant, only_with_the_grant};
use crate::harness::{Missing, TestDaemon, finish, per_connection, require, sh, until};
use crate::servers::{Serving, allow, free_port, needs, start};

/// A server of its own, on loopback and in a directory that goes with it.
struct Database {
    // Ended before its directory goes.
    _server: Serving,
    directory: TempDir,
    port: u16,
}

/// Nobody, as whom the server runs: it refuses to be root's.
const NOBODY: u32 = 65534;

/// A program of the server, as an ordinary user, that ends with this test.
fn program(name: &str) -> Option<Command> {
    let found = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut programs: Vec<PathBuf> = found.map(|version| version.path().join("bin").join(name)).collect();
    programs.sort();
    let program = programs.pop().filter(|program| program.exists())?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if rustix::process::geteuid().is_root() {
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]);
    }
    command.arg(program).env("LC_ALL", "C");
    Some(command)
}

impl Database {
    /// Makes one and waits until it answers; `None` where this host has no server.
    fn start() -> Option<Self> {
        let (mut make, mut serve) = (program("initdb")?, program("postgres")?);
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        sh(
            at,
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=web.test \
             -addext subjectAltName=DNS:web.test -keyout key.pem -out cert.pem 2>/dev/null",
        );
        std::fs::set_permissions(at.join("key.pem"), PermissionsExt::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            for path in [at.to_owned(), at.join("key.pem"), at.join("cert.pem")] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let data = at.join("data");
        make.args(["--auth=trust", "--username=guest", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        let made = finish(make.arg("--no-instructions").arg("--pgdata").arg(&data).current_dir(at));
        assert!(made.status.success(), "{made:?}");
        let port = free_port();
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            format!("port={port}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", at.join("cert.pem").display()),
            format!("ssl_key_file={}", at.join("key.pem").display()),
            "fsync=off".to_owned(),
            "shared_buffers=4MB".to_owned(),
        ];
        serve.arg("-D").arg(&data).args(settings.iter().flat_map(|setting| ["-c", setting])).current_dir(at);
        // It puts away what it shares among its processes.
        let server = Serving::start_ending(&mut serve, Signal::QUIT);
        until("the database listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { _server: server, directory, port })
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    /// A command line of the client.
    fn psql(&self, how: &str, statement: &str) -> String {
        let port = self.port;
        format!(
            "psql -XAtq -v ON_ERROR_STOP=1 'host=web.test port={port} user=guest dbname=postgres connect_timeout=60 {how}' \
             -c \"{statement}\""
        )
    }
}

const CLEAR: &str = "sslmode=disable";
const CHECKED: &str = "sslmode=verify-full sslrootcert=/workspace/root.pem";
const ENCRYPTED: &str = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";

/// A daemon and a database, where this host has both ends.
fn both() -> Result<(TestDaemon, Database), Missing> {
    let database = Database::start().ok_or(Missing::on_host("this host has no PostgreSQL server"))?;
    let daemon = start();
    needs(&daemon, "psql")?;
    Ok((daemon, database))
}

fn give(daemon: &TestDaemon, certificate: &Path, sandbox: &str) {
    daemon.succeeds(&["cp", certificate.to_str().unwrap(), &format!("{sandbox}:root.pem")]);
}

per_connection!(psql_works_in_the_clear_and_with_encryption_that_begins_in_the_middle);

fn psql_works_in_the_clear_and_with_encryption_that_begins_in_the_middle() {
    let (daemon, database) = require!(both());
    let port = database.port;
    give(&daemon, &database.certificate(), "box");
    let clear = database.psql(CLEAR, ENCRYPTED);
    assert_eq!(only_with_the_grant(&daemon, &clear, port, "tcp"), "f\n");
    assert_eq!(daemon.shell("box", &database.psql(CHECKED, ENCRYPTED)), "t\n");
    // Much in both directions.
    let fill = format!(
        "seq 300000 | {} -c '\\copy numbers from pstdin' -c 'select sum(n) from numbers'",
        database.psql(CHECKED, "create table numbers (n bigint)")
    );
    assert_eq!(daemon.shell("box", &fill), "45000150000\n");
    let empty = database.psql(CHECKED, "select repeat('x', 999) from generate_series(1, 10000)");
    assert_eq!(daemon.shell("box", &format!("{empty} | wc -c")), "10000000\n");
    // What is wrong with the certificate is for the client to say.
    let wrong =
        database.psql("sslmode=verify-full sslrootcert=/etc/ssl/certs/ca-certificates.crt", ENCRYPTED);
    let refused = daemon.exec("box", json!({ "command": wrong, "timeout": "60s" }));
    assert_eq!(refused["exit_code"], 2, "{refused}");
    assert!(refused["stderr"].as_str().unwrap().contains("certificate"), "{refused}");
}

per_connection!(a_statement_of_psql_is_cancelled_by_its_client_and_by_the_end_of_its_grant);

fn a_statement_of_psql_is_cancelled_by_its_client_and_by_the_end_of_its_grant() {
    let (daemon, database) = require!(both());
    let port = database.port;
    grant(&daemon, port, "tcp");
    let sleeping =
        database.psql(CLEAR, "select count(*) from pg_stat_activity where query like 'select pg_sl%'");
    let sleeps = || daemon.shell("box", &sleeping) == "1\n";
    let sleep = |name: &str| -> Value {
        let command = format!("exec {}", database.psql("sslmode=require", "select pg_sleep(600)"));
        daemon.post("/v1/sandboxes/box/jobs", json!({ "name": name, "command": command }))
    };
    let ended = |job: &Value| -> Value {
        let path = format!("/v1/runs/{}/wait", job["run_id"].as_str().unwrap());
        daemon.post(&path, json!({ "timeout": "60s" }))
    };
    let job = sleep("cancelled");
    until("it sleeps", sleeps);
    daemon.post("/v1/runs/box:cancelled/kill", json!({ "signal": "INT" }));
    let cancelled = ended(&job);
    assert!(cancelled["stderr"].as_str().unwrap().contains("canceling statement"), "{cancelled}");
    let job = sleep("cut");
    until("it sleeps", sleeps);
    daemon.succeeds(&["revoke", "box", &format!("web.test:{port}/tcp")]);
    let cut = ended(&job);
    assert_eq!((&cut["state"], &cut["exit_code"]), (&json!("failed"), &json!(2)), "{cut}");
}

per_connection!(psql_is_refused_at_once_where_only_tls_is_granted_and_told_why);

fn psql_is_refused_at_once_where_only_tls_is_granted_and_told_why() {
    let (daemon, database) = require!(both());
    let port = database.port;
    allow(&daemon, "box", &[format!("web.test:{port}/tls"), format!("127.0.0.1:{port}")]);
    for how in [CLEAR, "sslmode=require"] {
        let run = daemon.exec("box", json!({ "command": database.psql(how, "select 1"), "timeout": "60s" }));
        assert_eq!(run["exit_code"], 2, "{how}: {run}");
        let told = run["violations"].to_string();
        assert!(told.contains("not_tls") && told.contains("/tcp"), "{how}: {run}");
    }
}
