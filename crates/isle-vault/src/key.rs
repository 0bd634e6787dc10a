//! Where the key of the vault comes from: the daemon's environment, the output of a program, a keyring, or a file
//! with mode 0600. A keyring or file gets a new key on first use.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isle_egress::Placements;
use zeroize::Zeroizing;

use super::pii::PiiKinds;
use super::program::{LONGEST, run};
use super::request::SecretHost;
use super::scope::parse_places;
use super::seal::Key;
use isle_core::keyring::Keyring;
use isle_core::values::{Namespace, SecretName, SecretText};
use isle_core::{Code, Error, Result};

/// Settings of the vault.
#[derive(Debug, Clone, Default)]
pub struct VaultConfig {
    /// The key itself, from the environment.
    pub key: Option<KeyText>,
    /// A program whose standard output is the key, and its arguments.
    pub key_command: Vec<String>,
    /// The keyring that stores the key, if any.
    pub keyring: Option<Arc<dyn Keyring>>,
    /// The file that stores the key otherwise. `None`: no key file, so the vault needs one of the above.
    pub key_file: Option<PathBuf>,
    /// Who may expose the value of a secret in a sandbox.
    pub expose: ExposePolicy,
    /// Secrets from outside that are not stored.
    pub external: Vec<ExternalSecret>,
    /// Personal data that is masked in the output of every sandbox.
    pub mask_pii: PiiKinds,
}

/// A secret from outside, such as a variable of the daemon's environment.
#[derive(Debug, Clone)]
pub struct ExternalSecret {
    /// The namespace it belongs to.
    pub namespace: Namespace,
    /// Its name.
    pub name: SecretName,
    /// Where it may be sent.
    pub hosts: Vec<SecretHost>,
    /// Where in a request it may be placed.
    pub places: Placements,
    /// Its value.
    pub value: SecretText,
}

impl ExternalSecret {
    /// Parses an entry of `secrets_from_env`: key `NAME` or `NAMESPACE@NAME`, value `VARIABLE HOST…`, where a host
    /// may also be `place=PLACEMENT`. `look` reads the variable.
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
        let (places, hosts): (Vec<&str>, Vec<&str>) = words.partition(|word| word.starts_with("place="));
        let hosts: Result<Vec<SecretHost>> = hosts.into_iter().map(str::parse).collect();
        let places: Vec<String> = places.iter().map(|place| place.replacen("place=", "", 1)).collect();
        let places = if places.is_empty() { Ok(Placements::default()) } else { parse_places(&places) };
        let value = Zeroizing::new(
            look(variable).ok_or_else(|| refuse(format!("the daemon has no variable {variable}")))?,
        );
        let reason = |error: Error| refuse(error.message);
        Ok(Self {
            namespace: namespace.map_err(reason)?,
            name: name.parse().map_err(reason)?,
            hosts: hosts.map_err(reason)?,
            places: places.map_err(reason)?,
            value: SecretText::new(value).map_err(reason)?,
        })
    }
}

/// A key as text. `Debug` does not print it.
#[derive(Clone)]
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// From the text, unchecked.
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

/// Who may expose the value of a secret in a sandbox, where any program can read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExposePolicy {
    /// No caller.
    Never,
    /// Callers over HTTP and the command line; no model.
    #[default]
    People,
    /// Every caller that may attach secrets.
    Anybody,
}

/// What to do when there is no key in the keyring or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// Create one.
    Create,
    /// Fail: secrets exist, and a new key would not open them.
    Fail,
}

impl VaultConfig {
    /// Finds the key. Blocks while a program runs.
    pub fn find(&self, missing: IfMissing) -> Result<Key> {
        if let Some(KeyText(text)) = &self.key {
            return Key::parse(text).ok_or_else(|| unreadable("ISLE_VAULT_KEY"));
        }
        if let Some((program, arguments)) = self.key_command.split_first() {
            return from_program(program, arguments);
        }
        if let Some(keyring) = &self.keyring {
            return from_keyring(&**keyring, missing);
        }
        match &self.key_file {
            Some(path) => from_file(path, missing),
            None => Err(locked("no vault key is configured".to_owned())
                .next("set ISLE_VAULT_KEY where the daemon starts")),
        }
    }
}

fn locked(message: String) -> Error {
    Error::new(Code::VaultLocked, message)
}

fn unreadable(what: &str) -> Error {
    locked(format!("{what} does not contain a key"))
        .next("a key is 64 hexadecimal digits; `openssl rand -hex 32` prints one")
}

fn from_program(program: &str, arguments: &[String]) -> Result<Key> {
    let failed = |why: String| {
        locked(format!("vault_key_command: {program} {why}"))
            .next("run it by hand: it must print 64 hexadecimal digits and exit with status 0")
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = run(program, &arguments, None).map_err(failed)?;
    if !answer.status.success() {
        return Err(failed(format!("exited with {}", answer.status)));
    }
    Key::parse(&answer.stdout).ok_or_else(|| unreadable(&format!("the output of {program}")))
}

fn from_keyring(keyring: &dyn Keyring, missing: IfMissing) -> Result<Key> {
    let name = keyring.name();
    let failed = |error: std::io::Error| {
        locked(format!("cannot read the vault key from {name}: {error}"))
            .next("check that the daemon can use it, or choose another keyring with `vault_keyring`")
    };
    if let Some(text) = keyring.read().map_err(failed)? {
        return Key::parse(&text).ok_or_else(|| unreadable(&name));
    }
    if missing == IfMissing::Fail {
        return Err(locked(format!("the vault key is not in {name}"))
            .next(keyring.remedy())
            .next("or start the daemon with ISLE_VAULT_KEY set to the key")
            .next("without the key the secrets cannot be recovered: remove them and set them again"));
    }
    let key = Key::generate()?;
    keyring.write(&key.to_hex()).map_err(failed)?;
    isle_fail::fail(isle_fail::Point::VaultKeyMade).map_err(Error::internal)?;
    // Verified before anything is sealed with it.
    let stored = keyring.read().map_err(failed)?;
    if stored.is_none_or(|stored| *stored != *key.to_hex()) {
        return Err(failed(std::io::Error::other("it did not store the key")));
    }
    Ok(key)
}

fn from_file(path: &Path, missing: IfMissing) -> Result<Key> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match missing {
                IfMissing::Create => create(path),
                IfMissing::Fail => Err(locked(format!("the vault key file {shown} does not exist"))
                    .next("restore the file, or set ISLE_VAULT_KEY to its contents")
                    .next("without the key the secrets cannot be recovered: remove them and set them again")),
            };
        }
        Err(error) => {
            return Err(locked(format!("cannot read the vault key file {shown}: {error}"))
                .next("make it readable for the user of the daemon"));
        }
    };
    let metadata = file.metadata().map_err(Error::internal)?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return Err(locked(format!("the vault key file {shown} is readable by others"))
            .next(format!("chmod 600 {shown}, and use another key if another user could have read it")));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LONGEST).read_to_string(&mut text).map_err(|_| unreadable(&shown.to_string()))?;
    Key::parse(&text).ok_or_else(|| unreadable(&shown.to_string()))
}

/// Creates the key file atomically, without replacing an existing one.
fn create(path: &Path) -> Result<Key> {
    let key = Key::generate()?;
    let unfinished = path.with_extension("unfinished");
    let write = || -> std::io::Result<()> {
        // Left by a daemon that died before the file was in place: not in use.
        let _ = std::fs::remove_file(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(key.to_hex().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::hard_link(&unfinished, path)?;
        std::fs::remove_file(&unfinished)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        locked(format!("cannot create the vault key file {}: {error}", path.display()))
            .next("make the state directory writable for the user of the daemon")
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
        assert_eq!(config(&path).find(IfMissing::Fail).unwrap_err().code, Code::VaultLocked);
        assert!(!path.exists());
        let key = config(&path).find(IfMissing::Create).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = config(&path).find(IfMissing::Create).unwrap();
        assert_eq!(key.to_hex(), again.to_hex());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(config(&path).find(IfMissing::Create).unwrap_err().message.contains("readable by others"));
    }

    #[test]
    fn a_secret_from_outside_belongs_to_the_namespace_it_is_written_for() {
        let look = |name: &str| (name == "MINE").then(|| "a value".to_owned());
        let plain = ExternalSecret::new("KEY", "MINE api.test *.b.test", look).unwrap();
        assert_eq!((plain.namespace.as_str(), plain.name.as_str(), plain.hosts.len()), ("default", "KEY", 2));
        let other = ExternalSecret::new("a_b@KEY", "MINE", look).unwrap();
        assert_eq!((other.namespace.as_str(), other.name.as_str()), ("a_b", "KEY"));
        let other = ExternalSecret::new("a@b_KEY", "MINE", look).unwrap();
        assert_eq!((other.namespace.as_str(), other.name.as_str()), ("a", "b_KEY"));
        assert!(!format!("{other:?}").contains("a value"));
        for (whose, from) in
            [("KEY", ""), ("KEY", "THEIRS"), ("K-Y", "MINE"), ("@KEY", "MINE"), ("KEY", "MINE *")]
        {
            assert_eq!(
                ExternalSecret::new(whose, from, look).unwrap_err().code,
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
        assert_eq!(*chosen.find(IfMissing::Create).unwrap().to_hex(), second);
        chosen.key = Some(KeyText::new(first.clone()));
        assert_eq!(*chosen.find(IfMissing::Create).unwrap().to_hex(), first);
        assert!(!path.exists() && !format!("{chosen:?}").contains(&first));
        chosen.key = Some(KeyText::new("short".into()));
        assert_eq!(chosen.find(IfMissing::Create).unwrap_err().code, Code::VaultLocked);
        for wrong in [vec!["false".to_owned()], command("no key"), vec!["/nowhere/at/all".to_owned()]] {
            let chosen = VaultConfig { key_command: wrong, ..config(&path) };
            assert_eq!(chosen.find(IfMissing::Create).unwrap_err().code, Code::VaultLocked);
        }
        assert_eq!(VaultConfig::default().find(IfMissing::Create).unwrap_err().code, Code::VaultLocked);
    }
}
