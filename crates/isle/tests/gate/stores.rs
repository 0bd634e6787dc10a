//! The stores of other systems: a sandbox laid out as Fedora, Alpine, Arch, openSUSE or NixOS lay theirs
//! out, links included. The authority of its gate is put where the programs of that system look.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::harness::{TestDaemon, per_connection, require, sh};
use crate::servers::{allow, needs, start};

/// The places every layout replaces.
const CLEAR: &str = "rm -rf /etc/ssl /etc/pki /var/lib/ca-certificates /etc/ca-certificates/extracted /etc/ca-certificates/trust-source /etc/static\n";

/// One system of the table: its name and its lines, as words.
type System = (&'static str, Vec<Vec<&'static str>>);

fn systems() -> Vec<System> {
    let table = include_str!("../../../../tests/stores/layouts.txt");
    let one = |system: &'static str| {
        let (name, lines) = system.split_once(']').unwrap();
        let lines = lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        (name, lines.filter(|words| !words.is_empty()).collect())
    };
    table.split("\n[").skip(1).map(one).collect()
}

/// A script that lays it out, in a directory with the authority the system knows.
fn laid_out(lines: &[Vec<&str>]) -> String {
    let mut script = CLEAR.to_owned();
    for words in lines {
        script += &match words[..] {
            ["bundle" | "fixed", path] => format!("mkdir -p {}; cp known.pem {path}\n", above(path)),
            // Of another format, as newer ones are.
            ["java", path] => format!("mkdir -p {}; echo 0 > {path}\n", above(path)),
            ["names" | "anchors", path] => format!("mkdir -p {path}\n"),
            ["link", path, to] => format!("mkdir -p {}; ln -s {to} {path}\n", above(path)),
            ["openssl", ..] => String::new(),
            _ => panic!("{words:?}"),
        };
    }
    script
}

fn above(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

fn as_root(daemon: &TestDaemon, sandbox: &str, script: &str) {
    let run = daemon.exec(sandbox, json!({ "command": format!("set -e\n{script}"), "user": "root" }));
    assert_eq!(run["state"], "completed", "{sandbox}: {run}");
}

per_connection!(the_authority_of_a_sandbox_is_put_where_programs_of_every_system_look);

fn the_authority_of_a_sandbox_is_put_where_programs_of_every_system_look() {
    let daemon = start();
    require!(needs(&daemon, "openssl"));
    let directory = tempfile::tempdir().unwrap();
    sh(
        directory.path(),
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj '/CN=Known' \
         -keyout known.key -out known.pem 2>/dev/null",
    );
    let known = directory.path().join("known.pem");
    for (system, lines) in systems() {
        daemon.succeeds(&["cp", known.to_str().unwrap(), &format!("{system}:known.pem")]);
        as_root(&daemon, system, &laid_out(&lines));
        let shell = |script: &str| daemon.shell(system, script);
        let believes = "openssl verify /etc/isle/ca.pem >/dev/null 2>&1";
        assert_eq!(shell("ls /etc/isle 2>/dev/null | wc -l"), "0\n", "{system}: nothing is opened yet");
        allow(&daemon, system, &["https://web.test:4443/page GET".to_owned()]);
        let own = shell("cat /etc/isle/ca.pem");
        // OpenSSL itself, as it is built here and as that system builds it.
        assert_eq!(
            shell(&format!("env -i PATH=\"$PATH\" sh -c '{believes} && echo yes'")),
            "yes\n",
            "{system}"
        );
        for words in &lines {
            let path = words[1];
            match words[..] {
                ["openssl", file, by_name] => {
                    let check = format!("SSL_CERT_FILE={file} SSL_CERT_DIR={by_name} {believes} && echo yes");
                    assert_eq!(shell(&check), "yes\n", "{system}: {words:?}");
                }
                ["names", path] => {
                    let check = format!(
                        "openssl verify -no-CAfile -CApath {path} /etc/isle/ca.pem >/dev/null 2>&1 && echo yes"
                    );
                    assert_eq!(shell(&check), "yes\n", "{system}: {words:?}");
                }
                ["anchors", path] => assert_eq!(shell(&format!("cat {path}/isle.crt")), own, "{system}"),
                ["java", path] => {
                    let read = format!("/v1/sandboxes/{system}/files/read?path={path}&encoding=base64");
                    let store = STANDARD.decode(daemon.get(&read)["content"].as_str().unwrap()).unwrap();
                    let digits: String = own.lines().filter(|line| !line.starts_with('-')).collect();
                    let certificate = STANDARD.decode(digits).unwrap();
                    assert_eq!(store[..4], [0xfe, 0xed, 0xfe, 0xed], "{system}: {words:?}");
                    assert!(store.windows(certificate.len()).any(|window| window == certificate), "{system}");
                }
                ["fixed", path] => assert_eq!(shell(&format!("cmp {path} known.pem && echo same")), "same\n"),
                // A link to what cannot be written becomes a file where programs look for it.
                ["link", path, _] if path.starts_with("/etc/static") => {}
                ["link", path, _] => {
                    let kept = if system == "nixos" { "file" } else { "link" };
                    let kind = format!("test -L {path} && echo link || echo file");
                    assert_eq!(shell(&kind), format!("{kept}\n"), "{system}: {words:?}");
                }
                _ => {}
            }
            let is_bundle =
                matches!(words[0], "bundle" | "link") && !path.contains("java") && !path.contains("static");
            if is_bundle && shell(&format!("test -d {path} && echo directory || echo file")) == "file\n" {
                let text = shell(&format!("cat {path}"));
                let known = std::fs::read_to_string(&known).unwrap();
                assert!(text.contains(&own) && text.contains(&known), "{system}: {words:?}: {text}");
            }
        }
        assert_eq!(shell("ls /etc/isle | grep -c new || true"), "0\n", "{system}: half of a file is left");
    }
}
