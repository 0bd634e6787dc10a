//! The desktop keyring, as a place for the key of the vault. It is used through `secret-tool`, which every desktop
//! with a Secret Service has. The kernel keyring is in `isle-linux`.

use std::io;

use isle_core::keyring::Keyring;
use zeroize::Zeroizing;

use super::program::{Output, run};

/// The desktop keyring. Its contents survive logout and reboot.
#[derive(Debug)]
pub struct DesktopKeyring {
    /// Which vault of this user.
    vault: String,
}

const PROGRAM: &str = "secret-tool";

impl DesktopKeyring {
    /// For the vault of one state directory.
    #[must_use]
    pub fn new(vault: String) -> Self {
        Self { vault }
    }

    fn ask(&self, verb: &[&str], input: Option<&str>) -> io::Result<Output> {
        let arguments: Vec<&str> =
            verb.iter().copied().chain(["service", "isle", "vault", &self.vault]).collect();
        run(PROGRAM, &arguments, input).map_err(|why| io::Error::other(format!("{PROGRAM} {why}")))
    }
}

impl Keyring for DesktopKeyring {
    fn name(&self) -> String {
        format!("the keyring of the desktop (service isle, vault {})", self.vault)
    }

    fn remedy(&self) -> String {
        format!(
            "unlock the keyring, or put the key there: {PROGRAM} store --label=Isle service isle vault '{}'",
            self.vault
        )
    }

    fn read(&self) -> io::Result<Option<Zeroizing<String>>> {
        let answer = self.ask(&["lookup"], None)?;
        match (answer.status.success(), answer.stderr.trim()) {
            (true, _) if answer.stdout.is_empty() => Ok(None),
            (true, _) => Ok(Some(answer.stdout)),
            // `secret-tool` prints nothing when there is no such item, and only then.
            (false, "") => Ok(None),
            (false, stderr) => Err(io::Error::other(stderr.to_owned())),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let answer = self.ask(&["store", "--label=Isle"], Some(text))?;
        if answer.status.success() {
            return Ok(());
        }
        let stderr = answer.stderr.trim();
        Err(io::Error::other(format!("{PROGRAM} exited with {}: {stderr}", answer.status)))
    }
}
