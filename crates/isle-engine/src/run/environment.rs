//! The environment of a command: a fixed base, the sandbox's own variables, and what the caller adds.
//! Nothing of the daemon's.

use isle_wire::GuestUser;
use minicbor::bytes::ByteVec;

use isle_core::values::SandboxName;
use isle_core::{Code, Error, Result};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The same for the sandbox user, whose own programs come first: what `install` brought is found.
const USER_PATH: &str =
    "/home/sandbox/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where `install` puts the packages of Node.js; Python finds its own by itself.
/// Where sandboxes that may spawn have the client of their control socket.
const CONTROL_PATH: &str = "/run/isle";
const NODE_PATH: &str = "/home/sandbox/.local/lib/node_modules";

/// Whether a name looks like that of a secret. Whole words count, so `KEYBOARD` and `MAX_TOKENS` are none.
pub(crate) fn looks_secret(name: &str) -> bool {
    const ANYWHERE: &[&str] = &[
        "APIKEY",
        "CREDENTIAL",
        "CREDENTIALS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PASSWORDS",
        "SECRET",
        "SECRETS",
    ];
    const AT_THE_END: &[&str] = &["KEY", "KEYS", "PASS", "PAT", "TOKEN"];
    const HARMLESS_BEFORE_KEY: &[&str] = &["FOREIGN", "PARTITION", "PRIMARY", "PUBLIC", "SORT"];
    // What is said about a secret is none.
    const ABOUT: &[&str] = &["DIR", "FILE", "ID", "LENGTH", "NAME", "PATH", "POLICY"];
    let upper = name.to_ascii_uppercase();
    let mut words: Vec<&str> = upper.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    while words.last().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        words.pop();
    }
    let Some((last, before)) = words.split_last() else { return false };
    if AT_THE_END.contains(last) {
        return !before.last().is_some_and(|word| HARMLESS_BEFORE_KEY.contains(word));
    }
    !ABOUT.contains(last) && words.iter().any(|word| ANYWHERE.contains(word))
}

/// What is done about names that look like those of secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecretNames {
    /// Nothing.
    Allow,
    /// The answer says so.
    #[default]
    Warn,
    /// The call is refused.
    Refuse,
}

impl SecretNames {
    /// Refuses such names, or gives a sentence about them.
    pub(crate) fn judge<'a>(self, names: impl Iterator<Item = &'a str>) -> Result<Option<String>> {
        if self == Self::Allow {
            return Ok(None);
        }
        let found: Vec<&str> = names.filter(|name| looks_secret(name)).collect();
        if found.is_empty() {
            return Ok(None);
        }
        let (what, verb) = if found.len() == 1 { ("a secret", "looks") } else { ("secrets", "look") };
        let shown = found.join(", ");
        match self {
            Self::Allow => Ok(None),
            Self::Warn => Ok(Some(format!(
                "{shown} {verb} like {what}: everything in the sandbox can read the environment"
            ))),
            Self::Refuse => Err(Error::new(
                Code::PolicyDenied,
                format!("{shown} {verb} like {what}, and `secret_names` refuses such variables"),
            )
            .detail("names", found.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
            .next("leave it out, or give it another name if it is no secret")
            .next("the operator can set secret_names to warn or allow")),
        }
    }
}

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
        if isle_core::values::steers_loader(name) {
            return refuse(
                "variables of the loader are not set from outside",
                "set it inside the command, such as `env LD_LIBRARY_PATH=… program`",
            );
        }
    }
    Ok(())
}

/// The whole environment, `NAME=value`. `extra` is what is added to the base, the strongest last.
pub(super) fn environment(
    sandbox: &SandboxName,
    control: bool,
    user: GuestUser,
    terminal: bool,
    extra: &[(String, String)],
) -> Vec<ByteVec> {
    let (home, name, path, modules) = match user {
        GuestUser::Sandbox => ("/home/sandbox", "sandbox", USER_PATH, Some(("NODE_PATH", NODE_PATH))),
        GuestUser::Root => ("/root", "root", PATH, None),
    };
    let path = if control { format!("{path}:{CONTROL_PATH}") } else { path.to_owned() };
    let base = [
        ("PATH", path.as_str()),
        ("HOME", home),
        ("USER", name),
        ("LOGNAME", name),
        ("LANG", "C.UTF-8"),
        ("ISLE_SANDBOX", sandbox.as_str()),
    ];
    let terminal = terminal.then_some(("TERM", "xterm-256color"));
    // Of two with the same name only the later one counts: the caller's, and of those the last.
    let overridden = |name: &str| extra.iter().any(|(given, _)| given == name);
    let base = base.into_iter().chain(modules).chain(terminal).filter(|(name, _)| !overridden(name));
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
        environment(&SandboxName::default_sandbox(), false, GuestUser::Sandbox, terminal, &extra)
            .into_iter()
            .map(|entry| String::from_utf8(entry.into()).unwrap())
            .collect()
    }

    #[test]
    fn the_base_holds_nothing_of_the_daemons_own() {
        let expected = [
            "PATH=/home/sandbox/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/home/sandbox",
            "USER=sandbox",
            "LOGNAME=sandbox",
            "LANG=C.UTF-8",
            "ISLE_SANDBOX=default",
            "NODE_PATH=/home/sandbox/.local/lib/node_modules",
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
        for (name, value) in [
            ("", "x"),
            ("A=B", "x"),
            ("A\0", "x"),
            ("A", "x\0"),
            ("LD_PRELOAD", "x.so"),
            ("DYLD_INSERT_LIBRARIES", "x"),
            ("GLIBC_TUNABLES", "x"),
        ] {
            let error = check_environment(&[(name.into(), value.into())]).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(!error.next_steps.is_empty());
        }
    }

    #[test]
    fn secrets_are_known_by_whole_words_of_their_names() {
        for name in [
            "API_KEY",
            "GITHUB_TOKEN",
            "GITHUB_PAT",
            "DB_PASSWORD",
            "db_passwd",
            "AWS_SECRET_ACCESS_KEY",
            "SECRET_KEY_BASE",
            "apiKey",
            "GOOGLE_CREDENTIALS",
            "API_KEY_2",
            "TOKEN",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in [
            "KEYBOARD",
            "MONKEY",
            "MAX_TOKENS",
            "TOKENIZERS_PARALLELISM",
            "PATH",
            "PUBLIC_KEY",
            "PASSWORD_FILE",
            "COMPASS",
            "PWD",
            "AWS_ACCESS_KEY_ID",
            "",
            "7",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
        let judge = |policy: SecretNames| policy.judge(["A", "A_TOKEN"].into_iter());
        assert_eq!(judge(SecretNames::Allow).unwrap(), None);
        assert!(judge(SecretNames::Warn).unwrap().is_some_and(|words| words.starts_with("A_TOKEN looks")));
        assert_eq!(judge(SecretNames::Refuse).unwrap_err().code, Code::PolicyDenied);
        assert_eq!(SecretNames::Refuse.judge(["KEYBOARD"].into_iter()).unwrap(), None);
    }
}
