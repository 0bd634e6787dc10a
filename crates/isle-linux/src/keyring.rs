//! The kernel's keyring of this user, as a place for the key of secrets. It is memory: nothing of it is on
//! a disk, and nothing is left after a restart of the machine, nor, but for root, when the last process of
//! the user has ended. Sandboxes are refused the calls it takes.

use std::ffi::{CStr, CString, c_long};
use std::io;

use isle_core::keyring::Keyring;
use zeroize::Zeroizing;

use isle_setup::sys::check;

/// The type of keys that hold what they are given.
const TYPE: &CStr = c"user";
/// The possessor of the keyring has all permissions; its user may view, read and search it, also
/// from a session that does not have the keyring.
const RIGHTS: c_long = 0x3f0b_0000;
/// More than any key takes.
const LONGEST: usize = 1024;
/// An argument that an operation does not have.
const NOTHING: c_long = 0;

/// A key in the keyring of this user.
#[derive(Debug)]
pub struct KernelKeyring {
    entry: String,
}

impl KernelKeyring {
    /// For the vault of one state directory.
    #[must_use]
    pub fn new(vault: &str) -> Self {
        Self { entry: format!("isle-vault:{vault}") }
    }

    fn description(&self) -> io::Result<CString> {
        CString::new(self.entry.as_str()).map_err(io::Error::other)
    }

    /// The key's number, if there is one.
    fn find(&self) -> io::Result<Option<c_long>> {
        let description = self.description()?;
        // SAFETY: both texts end with NUL and live until the call is over.
        let found = check(unsafe {
            libc::syscall(
                libc::SYS_keyctl,
                c_long::from(libc::KEYCTL_SEARCH),
                user_keyring(),
                TYPE.as_ptr(),
                description.as_ptr(),
                NOTHING,
            )
        });
        match found {
            Ok(key) => Ok(Some(key)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the key out, if it is there.
    pub fn remove(&self) -> io::Result<()> {
        let Some(key) = self.find()? else { return Ok(()) };
        control(libc::KEYCTL_UNLINK, key, user_keyring()).map(drop)
    }
}

fn is_gone(error: &io::Error) -> bool {
    [libc::ENOKEY, libc::EKEYEXPIRED, libc::EKEYREVOKED].map(Some).contains(&error.raw_os_error())
}

/// An operation on numbers alone.
fn control(operation: u32, first: c_long, second: c_long) -> io::Result<c_long> {
    // SAFETY: numbers only; the kernel checks them.
    check(unsafe {
        libc::syscall(libc::SYS_keyctl, c_long::from(operation), first, second, NOTHING, NOTHING)
    })
}

/// The user's keyring, held by this thread: who holds it may do with its keys what their owner may.
struct Held;

impl Held {
    fn new() -> io::Result<Self> {
        control(libc::KEYCTL_LINK, user_keyring(), thread_keyring())?;
        Ok(Self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // It goes with the thread otherwise.
        control(libc::KEYCTL_UNLINK, user_keyring(), thread_keyring()).ok();
    }
}

fn user_keyring() -> c_long {
    c_long::from(libc::KEY_SPEC_USER_KEYRING)
}

fn thread_keyring() -> c_long {
    c_long::from(libc::KEY_SPEC_THREAD_KEYRING)
}

impl Keyring for KernelKeyring {
    fn name(&self) -> String {
        format!("the kernel keyring of this user ({})", self.entry)
    }

    fn remedy(&self) -> String {
        format!(
            "the kernel keyring is empty after a reboot; add the key with: keyctl padd user '{}' @u",
            self.entry
        )
    }

    fn read(&self) -> io::Result<Option<Zeroizing<String>>> {
        let Some(key) = self.find()? else { return Ok(None) };
        let _held = Held::new()?;
        let mut bytes = Zeroizing::new(vec![0u8; LONGEST]);
        // SAFETY: the kernel writes at most as many bytes as it is told there are.
        let length = check(unsafe {
            libc::syscall(
                libc::SYS_keyctl,
                c_long::from(libc::KEYCTL_READ),
                key,
                bytes.as_mut_ptr(),
                bytes.len(),
                NOTHING,
            )
        });
        let length = match length {
            Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text =
            text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the entry is not a key"))?;
        Ok(Some(Zeroizing::new(text.to_owned())))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let description = self.description()?;
        let _held = Held::new()?;
        // SAFETY: the texts end with NUL, the length is that of the bytes, and all live until the call is over.
        let key = check(unsafe {
            libc::syscall(
                libc::SYS_add_key,
                TYPE.as_ptr(),
                description.as_ptr(),
                text.as_ptr(),
                text.len(),
                libc::KEY_SPEC_USER_KEYRING,
            )
        })?;
        control(libc::KEYCTL_SETPERM, key, RIGHTS).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_replaced_and_taken_out() {
        let keyring = KernelKeyring::new(&format!("unit test {}", std::process::id()));
        match keyring.read() {
            Err(error) => isle_e2e::skip!("the kernel has no keyrings for this process: {error}"),
            Ok(before) => assert!(before.is_none()),
        }
        for text in ["a key", "another key"] {
            keyring.write(text).unwrap();
            assert_eq!(keyring.read().unwrap().as_deref().map(String::as_str), Some(text));
        }
        // Another thread holds nothing, and is the same user.
        std::thread::scope(|scope| {
            let read = scope.spawn(|| keyring.read().unwrap()).join().unwrap();
            assert_eq!(read.as_deref().map(String::as_str), Some("another key"));
        });
        keyring.remove().unwrap();
        assert!(keyring.read().unwrap().is_none());
        keyring.remove().unwrap();
    }
}
