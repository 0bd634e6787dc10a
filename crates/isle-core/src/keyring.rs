//! The interface of keyrings that store the vault's key outside the daemon's files.

use std::fmt;
use std::io;

use zeroize::Zeroizing;

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
