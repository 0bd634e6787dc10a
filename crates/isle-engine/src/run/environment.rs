//! The environment of a command: a fixed base and what the caller adds. Nothing of the daemon's.

use isle_wire::GuestUser;
use minicbor::bytes::ByteVec;

use crate::error::{Code, Error, Result};
use crate::values::SandboxName;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Checks what a caller wants to add.
pub(crate) fn check_environment(env: &[(String, String)]) -> Result<()> {
    for (name, value) in env {
        let refuse = |why: &str, next: &str| {
            Err(Error::new(Code::InvalidArgument, format!("env {name:?}: {why}")).next(next))
        };
        if name.is_empty() {
            return refuse("the name is empty", "give every variable a name");
        }
        if name.contains('=') || name.contains('\0') {
            return refuse("a name may not contain `=` or NUL", "put the value after the name, not into it");
        }
        if value.contains('\0') {
            return refuse("the value contains NUL", "remove it; write binary data to a file instead");
        }
        if name.starts_with("LD_") {
            return refuse(
                "variables of the loader are not set from outside",
                "set it inside the command, such as `env LD_LIBRARY_PATH=… program`",
            );
        }
    }
    Ok(())
}

/// The whole environment, `NAME=value`.
pub(super) fn environment(
    sandbox: &SandboxName,
    user: GuestUser,
    terminal: bool,
    extra: &[(String, String)],
) -> Vec<ByteVec> {
    let (home, name) = match user {
        GuestUser::Sandbox => ("/home/sandbox", "sandbox"),
        GuestUser::Root => ("/root", "root"),
    };
    let base = [
        ("PATH", PATH),
        ("HOME", home),
        ("USER", name),
        ("LOGNAME", name),
        ("LANG", "C.UTF-8"),
        ("ISLE_SANDBOX", sandbox.as_str()),
    ];
    let terminal = terminal.then_some(("TERM", "xterm-256color"));
    // Of two with the same name only the later one counts: the caller's, and of those the last.
    let overridden = |name: &str| extra.iter().any(|(given, _)| given == name);
    let base = base.into_iter().chain(terminal).filter(|(name, _)| !overridden(name));
    let given = extra
        .iter()
        .enumerate()
        .filter(|(index, (name, _))| !extra[index + 1..].iter().any(|(later, _)| later == name));
    base.map(|(name, value)| format!("{name}={value}"))
        .chain(given.map(|(_, (name, value))| format!("{name}={value}")))
        .map(|entry| entry.into_bytes().into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(extra: &[(&str, &str)], terminal: bool) -> Vec<String> {
        let extra: Vec<_> = extra.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        environment(&SandboxName::default_sandbox(), GuestUser::Sandbox, terminal, &extra)
            .into_iter()
            .map(|entry| String::from_utf8(entry.into()).unwrap())
            .collect()
    }

    #[test]
    fn the_base_holds_nothing_of_the_daemons_own() {
        let expected = [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/home/sandbox",
            "USER=sandbox",
            "LOGNAME=sandbox",
            "LANG=C.UTF-8",
            "ISLE_SANDBOX=default",
        ];
        assert_eq!(texts(&[], false), expected);
        assert!(texts(&[], true).contains(&"TERM=xterm-256color".to_owned()));
    }

    #[test]
    fn what_the_caller_gives_replaces_the_base_once() {
        let got = texts(&[("HOME", "/a"), ("X", "1"), ("X", "2")], false);
        assert_eq!(got.iter().filter(|entry| entry.starts_with("HOME=")).collect::<Vec<_>>(), ["HOME=/a"]);
        assert_eq!(got.iter().filter(|entry| entry.starts_with("X=")).collect::<Vec<_>>(), ["X=2"]);
    }

    #[test]
    fn bad_names_and_loader_variables_are_refused() {
        for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0"), ("LD_PRELOAD", "x.so")] {
            let error = check_environment(&[(name.into(), value.into())]).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(!error.next_steps.is_empty());
        }
    }
}
