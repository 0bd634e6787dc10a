//! The process title that `ps` shows. An agent is a copy of the fork server, whose command line contains
//! directories of the host. Every process of the sandbox can read that, so it is overwritten.

use std::fs;
use std::sync::OnceLock;

/// Where the arguments are in memory; the same in every copy of the fork server.
static AREA: OnceLock<Option<(usize, usize)>> = OnceLock::new();

/// Finds the arguments, once.
pub(crate) fn locate() {
    AREA.get_or_init(argument_area);
}

/// Replaces this process's command line and name.
pub(crate) fn set(name: &str) {
    isle_setup::sys::set_name("isle-agent").ok();
    let Some((start, length)) = *AREA.get_or_init(argument_area) else { return };
    let mut text = vec![0u8; length];
    let kept = name.len().min(length.saturating_sub(1));
    text[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    // SAFETY: according to the kernel the arguments of this process are at `start`, `length` bytes long, on
    // its own stack, which is writable. Nothing reads them any more: they were copied when the fork server
    // started.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), start as *mut u8, length) };
}

/// Address and length of the arguments, from fields 48 and 49 of `/proc/self/stat`.
fn argument_area() -> Option<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(45);
    let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (start > 0 && end > start).then_some((start, end - start))
}
