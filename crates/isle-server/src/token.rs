//! The operator's token for TCP: created at first start, stored in a file only its owner can read, compared in
//! constant time, never printed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isle_core::{Code, Error, Result};
use subtle::ConstantTimeEq;

const MIN_LENGTH: usize = 32;
const MAX_LENGTH: usize = 512;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Parses a token: 32 to 512 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self> {
        if (MIN_LENGTH..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(
            Code::ConfigInvalid,
            format!(
                "invalid token: expected {MIN_LENGTH} to {MAX_LENGTH} visible ASCII characters without spaces"
            ),
        )
        .next("remove the token file; the next start creates a new one"))
    }

    /// Reads the token from its file, or creates one. A file that others can read is rejected.
    pub fn load_or_create(path: &Path) -> Result<Self> {
        match open_existing(path) {
            Ok(file) => Self::read(file, path),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(unusable(path, error)),
        }
    }

    /// The token, for a client that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }

    fn read(mut file: File, path: &Path) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| unusable(path, error))?;
        let us = rustix::process::getuid().as_raw();
        if !metadata.is_file() || metadata.uid() != us || metadata.mode() & 0o077 != 0 {
            return Err(Error::new(
                Code::ConfigInvalid,
                format!("token file {} must be a regular file that only its owner can read", path.display()),
            )
            .next(format!("chown {us} {0} && chmod 600 {0}", path.display()))
            .next("or remove it; the next start creates a new token"));
        }
        let mut text = String::new();
        let limit = u64::try_from(MAX_LENGTH).unwrap_or(u64::MAX) + 2;
        (&mut file).take(limit).read_to_string(&mut text).map_err(|error| unusable(path, error))?;
        Self::new(text.trim_end())
    }

    /// Written to a temporary file first, so that the file is never seen incomplete.
    fn create(path: &Path) -> Result<Self> {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let token = Self(URL_SAFE_NO_PAD.encode(random));
        let temporary = path.with_extension(format!("new.{}", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            writeln!(file, "{}", token.0)?;
            file.sync_all()?;
            std::fs::hard_link(&temporary, path)
        })();
        // Not needed any more; it may not have been created.
        let _ = std::fs::remove_file(&temporary);
        match written {
            Ok(()) => Ok(token),
            // Another daemon created it first; use its token.
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
    Error::new(Code::ConfigInvalid, format!("cannot use token file {}: {error}", path.display()))
        .next(format!("check that {} is a writable directory", path.parent().unwrap_or(path).display()))
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
