//! The keys that leave a job without ending it: Ctrl-P Ctrl-Q, as other tools have them.

const FIRST: u8 = 0x10;
const SECOND: u8 = 0x11;

/// Watches what is typed for the two keys.
#[derive(Debug, Default)]
pub(crate) struct LeaveKeys {
    /// The first came, and nobody knows yet what it is the first of.
    half: bool,
}

/// What became of typed keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Pass these on.
    On(Vec<u8>),
    /// Pass these on, then leave.
    Leave(Vec<u8>),
}

impl LeaveKeys {
    /// Takes what was typed.
    pub(crate) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut on = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            if std::mem::take(&mut self.half) {
                if key == SECOND {
                    return Typed::Leave(on);
                }
                on.push(FIRST);
            }
            if key == FIRST {
                self.half = true;
            } else {
                on.push(key);
            }
        }
        Typed::On(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_keys_leave_and_everything_else_goes_through() {
        let mut keys = LeaveKeys::default();
        assert_eq!(keys.take(b"ls\r"), Typed::On(b"ls\r".to_vec()));
        assert_eq!(keys.take(b"a\x10"), Typed::On(b"a".to_vec()));
        assert_eq!(keys.take(b"b"), Typed::On(b"\x10b".to_vec()));
        assert_eq!(keys.take(b"\x11\x10\x10"), Typed::On(b"\x11\x10".to_vec()));
        assert_eq!(keys.take(b"\x11x"), Typed::Leave(Vec::new()));
        assert_eq!(keys.take(b"y\x10\x11z"), Typed::Leave(b"y".to_vec()));
    }
}
