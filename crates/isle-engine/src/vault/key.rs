//! Where the key of the vault comes from: the daemon's environment, a program that is asked for it, a
//! keyring, or a file only its owner reads. In the last two it is made at first use.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::keyring::Keyring;
use super::personal::Personal;
use super::program::{LONGEST, run};
use super::seal::Key;
use super::secret::{SecretHost, SecretName, SecretText};
use crate::error::{Code, Error, Result};
use crate::values::Namespace;

/// Settings of the vault.
#[derive(Debug, Clone, Default)]
pub struct VaultConfig {
    /// The key itself, from the environment.
    pub key: Option<KeyText>,
    /// A program whose standard output is the key, and its arguments.
    pub key_command: Vec<String>,
    /// The keyring that keeps the key, if one does.
    pub keyring: Option<Arc<dyn Keyring>>,
    /// The file that has the key otherwise; `None`: there is no such file, and no vault without a key.
    pub key_file: Option<PathBuf>,
    /// Who may have a value put into a sandbox.
    pub expose: ExposePolicy,
    /// Secrets that come from outside and are kept nowhere.
    pub given: Vec<GivenSecret>,
    /// Personal data that is masked in what comes out of every sandbox.
    pub mask_pii: Personal,
}

/// A secret from outside, such as a variable of the daemon's environment.
#[derive(Debug, Clone)]
pub struct GivenSecret {
    /// Whose it is.
    pub(super) namespace: Namespace,
    pub(super) name: SecretName,
    pub(super) hosts: Vec<SecretHost>,
    pub(super) value: SecretText,
}

impl GivenSecret {
    /// Reads one as settings write it: `NAME`, or `NAMESPACE@NAME`, and `VARIABLE HOST…`. The value of the
    /// variable is asked of `look`.
    pub fn new(whose: &str, from: &str, look: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let refuse = |why: String| {
            Error::new(Code::ConfigInvalid, format!("secrets_from_env: {whose}: {why}"))
                .next("write NAME = \"VARIABLE HOST…\", or \"NAMESPACE@NAME\", such as API_KEY = \"MY_KEY api.example.com\"")
        };
        let (namespace, name) = match whose.split_once('@') {
            Some((namespace, name)) => (namespace.parse(), name),
            None => (Ok(Namespace::default()), whose),
        };
        let mut words = from.split_whitespace();
        let variable = words.next().ok_or_else(|| refuse("no variable is named".into()))?;
        let hosts: Result<Vec<SecretHost>> = words.map(str::parse).collect();
        let value = Zeroizing::new(
            look(variable).ok_or_else(|| refuse(format!("the daemon has no variable {variable}")))?,
        );
        let reason = |error: Error| refuse(error.message);
        Ok(Self {
            namespace: namespace.map_err(reason)?,
            name: name.parse().map_err(reason)?,
            hosts: hosts.map_err(reason)?,
            value: SecretText::new(value).map_err(reason)?,
        })
    }
}

/// A key as it is written. It never shows itself.
#[derive(Clone)]
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// As it was found.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[key]")
    }
}

/// Who may have the value of a secret put into a sandbox, where whatever runs there can read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExposePolicy {
    /// Nobody.
    Never,
    /// People and programs over HTTP and the command line, no model.
    #[default]
    People,
    /// Whoever may attach secrets.
    Anybody,
}

/// What is done when there is no key where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// One is made.
    Make,
    /// There are secrets, so a fresh key opens nothing.
    Refuse,
}

impl VaultConfig {
    /// Finds the key. May wait for a program.
    pub(super) fn find(&self, missing: Missing) -> Result<Key> {
        if let Some(KeyText(text)) = &self.key {
            return Key::parse(text).ok_or_else(|| unreadable("ISLE_VAULT_KEY"));
        }
        if let Some((program, arguments)) = self.key_command.split_first() {
            return asked(program, arguments);
        }
        if let Some(keyring) = &self.keyring {
            return from_keyring(&**keyring, missing);
        }
        match &self.key_file {
            Some(path) => from_file(path, missing),
            None => Err(locked("there is no key for secrets".to_owned())
                .next("set ISLE_VAULT_KEY where the daemon starts")),
        }
    }
}

fn locked(message: String) -> Error {
    Error::new(Code::VaultLocked, message)
}

fn unreadable(what: &str) -> Error {
    locked(format!("{what} holds no key"))
        .next("a key is 64 hexadecimal digits, such as `openssl rand -hex 32` gives")
}

fn asked(program: &str, arguments: &[String]) -> Result<Key> {
    let failed = |why: String| {
        locked(format!("vault_key_command: {program} {why}"))
            .next("run it by hand: it has to print 64 hexadecimal digits and end well")
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = run(program, &arguments, None).map_err(failed)?;
    if !answer.status.success() {
        return Err(failed(format!("ended with {}", answer.status)));
    }
    Key::parse(&answer.output).ok_or_else(|| unreadable(&format!("what {program} printed")))
}

fn from_keyring(keyring: &dyn Keyring, missing: Missing) -> Result<Key> {
    let name = keyring.name();
    let failed = |error: std::io::Error| {
        locked(format!("the key of the secrets cannot be had from {name}: {error}"))
            .next("see that the daemon can use it, or choose another place with `vault_keyring`")
    };
    if let Some(text) = keyring.read().map_err(failed)? {
        return Key::parse(&text).ok_or_else(|| unreadable(&name));
    }
    if missing == Missing::Refuse {
        return Err(locked(format!("the key of the secrets is not in {name}"))
            .next(keyring.remedy())
            .next("or start the daemon with ISLE_VAULT_KEY set to it")
            .next("without it the secrets are lost: remove them, and set them again"));
    }
    let key = Key::fresh()?;
    keyring.write(&key.written()).map_err(failed)?;
    isle_fail::fail(isle_fail::Point::VaultKeyMade).map_err(Error::internal)?;
    // Nothing is sealed with a key that is not kept.
    let kept = keyring.read().map_err(failed)?;
    if kept.is_none_or(|kept| *kept != *key.written()) {
        return Err(failed(std::io::Error::other("it did not keep what it was given")));
    }
    Ok(key)
}

fn from_file(path: &Path, missing: Missing) -> Result<Key> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match missing {
                Missing::Make => make(path),
                Missing::Refuse => {
                    Err(locked(format!("the key of the secrets is gone: there is no {shown}"))
                        .next("bring the file back, or set ISLE_VAULT_KEY to what it held")
                        .next("without it the secrets are lost: remove them, and set them again"))
                }
            };
        }
        Err(error) => {
            return Err(locked(format!("the key of the secrets cannot be read: {shown}: {error}"))
                .next("the daemon has to be able to read it"));
        }
    };
    let known = file.metadata().map_err(Error::internal)?;
    if !known.is_file() || known.mode() & 0o077 != 0 {
        return Err(locked(format!("others may read the key of the secrets, {shown}"))
            .next(format!("chmod 600 {shown}; and choose another key if somebody else could have read it")));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LONGEST).read_to_string(&mut text).map_err(|_| unreadable(&shown.to_string()))?;
    Key::parse(&text).ok_or_else(|| unreadable(&shown.to_string()))
}

/// Makes the key: whole or not at all, and never over another.
fn make(path: &Path) -> Result<Key> {
    let key = Key::fresh()?;
    let unfinished = path.with_extension("unfinished");
    let made = || -> std::io::Result<()> {
        // One that a daemon left when it died is nobody's key yet.
        let _ = std::fs::remove_file(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(key.written().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::hard_link(&unfinished, path)?;
        std::fs::remove_file(&unfinished)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    };
    made().map_err(|error| {
        locked(format!("the key of the secrets cannot be made: {}: {error}", path.display()))
            .next("the daemon has to be able to write to its state directory")
    })?;
    isle_fail::fail(isle_fail::Point::VaultKeyMade).map_err(Error::internal)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config(path: &Path) -> VaultConfig {
        VaultConfig { key_file: Some(path.to_owned()), ..VaultConfig::default() }
    }

    #[test]
    fn the_key_file_is_made_once_and_only_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        assert_eq!(config(&path).find(Missing::Refuse).unwrap_err().code, Code::VaultLocked);
        assert!(!path.exists());
        let key = config(&path).find(Missing::Make).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = config(&path).find(Missing::Make).unwrap();
        assert_eq!(key.written(), again.written());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(config(&path).find(Missing::Make).unwrap_err().message.contains("others may read"));
    }

    #[test]
    fn a_secret_from_outside_belongs_to_the_namespace_it_is_written_for() {
        let look = |name: &str| (name == "MINE").then(|| "a value".to_owned());
        let plain = GivenSecret::new("KEY", "MINE api.test *.b.test", look).unwrap();
        assert_eq!((plain.namespace.as_str(), plain.name.as_str(), plain.hosts.len()), ("default", "KEY", 2));
        let other = GivenSecret::new("a_b@KEY", "MINE", look).unwrap();
        assert_eq!((other.namespace.as_str(), other.name.as_str()), ("a_b", "KEY"));
        let other = GivenSecret::new("a@b_KEY", "MINE", look).unwrap();
        assert_eq!((other.namespace.as_str(), other.name.as_str()), ("a", "b_KEY"));
        assert!(!format!("{other:?}").contains("a value"));
        for (whose, from) in
            [("KEY", ""), ("KEY", "THEIRS"), ("K-Y", "MINE"), ("@KEY", "MINE"), ("KEY", "MINE *")]
        {
            assert_eq!(
                GivenSecret::new(whose, from, look).unwrap_err().code,
                Code::ConfigInvalid,
                "{whose} {from}"
            );
        }
    }

    #[test]
    fn a_key_comes_from_the_environment_first_then_from_a_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        let (first, second) = ("11".repeat(32), "22".repeat(32));
        let command = |text: &str| vec!["printf".to_owned(), text.to_owned()];
        let mut chosen = VaultConfig { key_command: command(&second), ..config(&path) };
        assert_eq!(*chosen.find(Missing::Make).unwrap().written(), second);
        chosen.key = Some(KeyText::new(first.clone()));
        assert_eq!(*chosen.find(Missing::Make).unwrap().written(), first);
        assert!(!path.exists() && !format!("{chosen:?}").contains(&first));
        chosen.key = Some(KeyText::new("short".into()));
        assert_eq!(chosen.find(Missing::Make).unwrap_err().code, Code::VaultLocked);
        for wrong in [vec!["false".to_owned()], command("no key"), vec!["/nowhere/at/all".to_owned()]] {
            let chosen = VaultConfig { key_command: wrong, ..config(&path) };
            assert_eq!(chosen.find(Missing::Make).unwrap_err().code, Code::VaultLocked);
        }
        assert_eq!(VaultConfig::default().find(Missing::Make).unwrap_err().code, Code::VaultLocked);
    }
}
