//! Parses keys as terminals send them: single bytes, or sequences that begin with an escape.

use super::draw::Column;

/// A key binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Quit.
    Quit,
    /// Sort by this column.
    Column(Column),
    /// Sort by the next column.
    NextColumn,
    /// Sort by the previous column.
    PreviousColumn,
    /// Reverse the sort order.
    Reverse,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Key parser; a sequence may arrive in several reads.
#[derive(Debug, Default)]
pub(super) struct Keys {
    sequence: Vec<u8>,
}

/// Maximum length of a key sequence.
const MAX_SEQUENCE: usize = 8;

impl Keys {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        bytes.iter().filter_map(|byte| self.byte(*byte)).collect()
    }

    fn byte(&mut self, byte: u8) -> Option<Key> {
        if self.sequence.is_empty() {
            return match byte {
                0x1b => {
                    self.sequence.push(byte);
                    None
                }
                b'q' | b'Q' | 0x03 | 0x04 => Some(Key::Quit),
                b's' | b'>' | b'\t' => Some(Key::NextColumn),
                b'<' => Some(Key::PreviousColumn),
                b'c' => Some(Key::Column(Column::Cpu)),
                b'm' => Some(Key::Column(Column::Memory)),
                b'p' => Some(Key::Column(Column::Pids)),
                b'i' => Some(Key::Column(Column::Io)),
                b'd' => Some(Key::Column(Column::Disk)),
                b'n' => Some(Key::Column(Column::Name)),
                b'r' => Some(Key::Reverse),
                b'k' => Some(Key::Up),
                b'j' => Some(Key::Down),
                b' ' => Some(Key::PageDown),
                _ => None,
            };
        }
        let is_second = self.sequence.len() == 1;
        if is_second && byte != b'[' && byte != b'O' {
            // A single escape is ignored; the next byte is a key.
            self.sequence.clear();
            return self.byte(byte);
        }
        self.sequence.push(byte);
        let ends = !is_second && (0x40..=0x7e).contains(&byte);
        if !ends && self.sequence.len() < MAX_SEQUENCE {
            return None;
        }
        let sequence = std::mem::take(&mut self.sequence);
        match &sequence[2..] {
            b"A" => Some(Key::Up),
            b"B" => Some(Key::Down),
            b"C" => Some(Key::NextColumn),
            b"D" => Some(Key::PreviousColumn),
            b"5~" => Some(Key::PageUp),
            b"6~" => Some(Key::PageDown),
            b"H" | b"1~" => Some(Key::Home),
            b"F" | b"4~" => Some(Key::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_also_when_their_bytes_come_one_by_one() {
        let mut keys = Keys::default();
        assert_eq!(
            keys.read(b"si\x1b[A\x1bOB\x1b[5~x\x1b[1;5Cq"),
            [Key::NextColumn, Key::Column(Column::Io), Key::Up, Key::Down, Key::PageUp, Key::Quit]
        );
        for byte in b"\x1b[" {
            assert_eq!(keys.read(&[*byte]), []);
        }
        assert_eq!(keys.read(b"D"), [Key::PreviousColumn]);
        assert_eq!(keys.read(b"\x1bq"), [Key::Quit], "an escape does not swallow the next key");
        assert_eq!(keys.read(b"\x1b[999999999q"), [Key::Quit], "nor does a sequence without an end");
    }
}
