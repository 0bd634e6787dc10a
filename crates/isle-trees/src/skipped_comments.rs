//! Skipped files as comments in an archive, so that the side that unpacks can report them.

use isle_wire::{Carried, LeftOut};

/// The prefix of such comments.
const MARK: &[u8] = b"isle left out ";

/// The skipped files as comments.
pub(crate) fn comments(carried: &Carried) -> Vec<Vec<u8>> {
    let count = [MARK, carried.skipped_count.to_string().as_bytes()].concat();
    let one = |left: &LeftOut| [MARK, &left.path[..], b"\0", left.why.as_bytes()].concat();
    std::iter::once(count).chain(carried.skipped.iter().map(one)).collect()
}

/// Reads the skipped files that the other side reports. They are not trusted.
pub(crate) fn learn(carried: &mut Carried, comments: &[Vec<u8>]) {
    let ours = comments.iter().filter_map(|comment| comment.strip_prefix(MARK));
    for comment in ours {
        let mut parts = comment.splitn(2, |&byte| byte == 0);
        let (first, why) = (parts.next().unwrap_or_default(), parts.next());
        match why {
            Some(why) => {
                let why: String = String::from_utf8_lossy(why).chars().take(200).collect();
                carried.skipped.push(LeftOut { path: first.to_vec().into(), why });
            }
            None => {
                let count = std::str::from_utf8(first).ok().and_then(|digits| digits.parse().ok());
                carried.skipped_count = count.unwrap_or(0);
            }
        }
    }
    carried.skipped_count = carried.skipped_count.max(carried.skipped.len() as u64);
}
