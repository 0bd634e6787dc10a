//! The token TCP callers present: made at first start, kept in a file only its owner can read,
//! compared in constant time, never shown.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isle_engine::{Code, Error, Result};
use subtle::ConstantTimeEq;

const SHORTEST: usize = 32;
const LONGEST: usize = 512;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Takes a token someone chose: 32 to 512 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self> {
        if (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(
            Code::ConfigInvalid,
            format!("a token has {SHORTEST} to {LONGEST} visible ASCII characters without spaces"),
        )
        .next("remove the token file; the next start makes a new one"))
    }

    /// Reads the token from its file, or makes one there. A file that others can read is refused.
    pub fn load_or_create(path: &Path) -> Result<Self> {
        match open_existing(path) {
            Ok(file) => Self::read(file, path),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(unusable(path, error)),
        }
    }

    /// The token, for the client that needs to send it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this token, without telling by time how much of it is.
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }

    fn read(mut file: File, path: &Path) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| unusable(path, error))?;
        let us = rustix::process::getuid().as_raw();
        if !metadata.is_file() || metadata.uid() != us || metadata.mode() & 0o077 != 0 {
            return Err(Error::new(
                Code::ConfigInvalid,
                format!("the token file {} is not a file only its owner can read", path.display()),
            )
            .next(format!("chown {us} {0} && chmod 600 {0}", path.display()))
            .next("or remove it; the next start makes a new token"));
        }
        let mut text = String::new();
        let limit = u64::try_from(LONGEST).unwrap_or(u64::MAX) + 2;
        (&mut file).take(limit).read_to_string(&mut text).map_err(|error| unusable(path, error))?;
        Self::new(text.trim_end())
    }

    /// Written under another name first: whoever finds the file finds all of it.
    fn create(path: &Path) -> Result<Self> {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let token = Self(URL_SAFE_NO_PAD.encode(random));
        let draft = path.with_extension(format!("new.{}", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            writeln!(file, "{}", token.0)?;
            file.sync_all()?;
            std::fs::hard_link(&draft, path)
        })();
        // Whatever happened, the draft has done its work; if it was never made there is none.
        let _ = std::fs::remove_file(&draft);
        match written {
            Ok(()) => Ok(token),
            // Another daemon was faster; its token counts.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Self::read(open_existing(path).map_err(|error| unusable(path, error))?, path)
            }
            Err(error) => Err(unusable(path, error)),
        }
    }
}

fn open_existing(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn unusable(path: &Path, error: std::io::Error) -> Error {
    Error::new(Code::ConfigInvalid, format!("the token file {} cannot be used: {error}", path.display()))
        .next(format!("make sure {} is a directory you can write", path.parent().unwrap_or(path).display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let first = Token::load_or_create(&path).unwrap();
        assert_eq!(first, Token::load_or_create(&path).unwrap());
        assert_eq!(first.reveal().len(), 43);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_token_file_others_can_read_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        Token::load_or_create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Token::load_or_create(&path).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert!(error.next_steps[0].contains("chmod 600"));
    }

    #[test]
    fn a_link_in_place_of_the_token_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().join("real");
        Token::load_or_create(&real).unwrap();
        let link = directory.path().join("token");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(Token::load_or_create(&link).is_err());
    }

    #[test]
    fn a_token_is_never_shown_and_only_itself_matches() {
        let token = Token::new(&"x".repeat(32)).unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(token.matches("x".repeat(32).as_bytes()));
        assert!(!token.matches("x".repeat(33).as_bytes()));
        assert!(!token.matches(b""));
        assert!(Token::new("short").is_err());
    }
}
