//! The key sequence that detaches from a job without stopping it: Ctrl-P Ctrl-Q, as in Docker.

const FIRST: u8 = 0x10;
const SECOND: u8 = 0x11;

/// Finds the key sequence in typed input.
#[derive(Debug, Default)]
pub(crate) struct DetachKeys {
    /// The first key was typed.
    pending: bool,
}

/// What to do with typed keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Forward these.
    Forward(Vec<u8>),
    /// Forward these, then detach.
    Detach(Vec<u8>),
}

impl DetachKeys {
    /// Processes typed keys.
    pub(crate) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut forwarded = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            if std::mem::take(&mut self.pending) {
                if key == SECOND {
                    return Typed::Detach(forwarded);
                }
                forwarded.push(FIRST);
            }
            if key == FIRST {
                self.pending = true;
            } else {
                forwarded.push(key);
            }
        }
        Typed::Forward(forwarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_keys_leave_and_everything_else_goes_through() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.take(b"ls\r"), Typed::Forward(b"ls\r".to_vec()));
        assert_eq!(keys.take(b"a\x10"), Typed::Forward(b"a".to_vec()));
        assert_eq!(keys.take(b"b"), Typed::Forward(b"\x10b".to_vec()));
        assert_eq!(keys.take(b"\x11\x10\x10"), Typed::Forward(b"\x11\x10".to_vec()));
        assert_eq!(keys.take(b"\x11x"), Typed::Detach(Vec::new()));
        assert_eq!(keys.take(b"y\x10\x11z"), Typed::Detach(b"y".to_vec()));
    }
}
