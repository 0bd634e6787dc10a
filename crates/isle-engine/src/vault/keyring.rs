//! Keyrings that keep the key of the vault outside of the daemon's files. That of the desktop is asked
//! through `secret-tool`, the program every desktop with a Secret Service has; the kernel's is the
//! backend's to know.

use std::fmt;
use std::io;

use zeroize::Zeroizing;

use super::program::{Answer, run};

/// Something that keeps a key.
pub trait Keyring: fmt::Debug + Send + Sync {
    /// What it is and where the key is in it, for people.
    fn name(&self) -> String;

    /// What to do when the key is not there and should be.
    fn remedy(&self) -> String;

    /// The key as it is written, if it is there.
    fn read(&self) -> io::Result<Option<Zeroizing<String>>>;

    /// Keeps a key.
    fn write(&self, text: &str) -> io::Result<()>;
}

/// The keyring of the desktop. What it keeps outlives sessions and restarts.
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

    fn ask(&self, verb: &[&str], input: Option<&str>) -> io::Result<Answer> {
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
        match (answer.status.success(), answer.complaint.trim()) {
            (true, _) if answer.output.is_empty() => Ok(None),
            (true, _) => Ok(Some(answer.output)),
            // It is silent about what it does not find, and about nothing else.
            (false, "") => Ok(None),
            (false, complaint) => Err(io::Error::other(complaint.to_owned())),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let answer = self.ask(&["store", "--label=Isle"], Some(text))?;
        if answer.status.success() {
            return Ok(());
        }
        let complaint = answer.complaint.trim();
        Err(io::Error::other(format!("{PROGRAM} ended with {}: {complaint}", answer.status)))
    }
}
