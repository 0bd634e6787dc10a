//! What was carried from one place to another, and what was not.

/// How many of those left out are named.
const NAMED: usize = 100;
/// What comments of ours begin with.
const MARK: &[u8] = b"isle left out ";

/// What was packed or unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What was left out, the first of them.
    pub skipped: Vec<LeftOut>,
    /// How many were left out in all.
    pub skipped_count: u64,
}

/// Something that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Path relative to the top.
    pub path: Vec<u8>,
    /// Why.
    pub why: String,
}

impl Carried {
    /// Notes something that was left out.
    pub fn skip(&mut self, path: &[u8], why: impl Into<String>) {
        self.skipped_count += 1;
        if self.skipped.len() < NAMED {
            self.skipped.push(LeftOut { path: path.to_vec(), why: why.into() });
        }
    }

    /// What was left out, as comments of an archive.
    pub(crate) fn comments(&self) -> Vec<Vec<u8>> {
        let count = [MARK, self.skipped_count.to_string().as_bytes()].concat();
        let one = |left: &LeftOut| [MARK, &left.path[..], b"\0", left.why.as_bytes()].concat();
        std::iter::once(count).chain(self.skipped.iter().map(one)).collect()
    }

    /// Takes over what the other side says it has left out. It is not trusted to be the truth.
    pub(crate) fn learn(&mut self, comments: &[Vec<u8>]) {
        let ours = comments.iter().filter_map(|comment| comment.strip_prefix(MARK));
        for comment in ours {
            let mut parts = comment.splitn(2, |&byte| byte == 0);
            let (first, why) = (parts.next().unwrap_or_default(), parts.next());
            match why {
                Some(why) => {
                    let why: String = String::from_utf8_lossy(why).chars().take(200).collect();
                    self.skipped.push(LeftOut { path: first.to_vec(), why });
                }
                None => {
                    let count = std::str::from_utf8(first).ok().and_then(|digits| digits.parse().ok());
                    self.skipped_count = count.unwrap_or(0);
                }
            }
        }
        self.skipped_count = self.skipped_count.max(self.skipped.len() as u64);
    }
}
