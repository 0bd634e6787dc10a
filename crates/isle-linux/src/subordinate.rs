//! Subordinate ids of an unprivileged user, from `/etc/subuid` and `/etc/subgid`. The owner of a host id may
//! signal and trace its processes, so a range that is also assigned to another user is rejected, and the
//! printed command to get one names a free range.

use std::fs;
use std::path::Path;

/// The most extents of an id map the kernel takes, less the one for the user itself.
const MOST_RANGES: usize = 339;
/// Fewer are of no use: one sandbox takes so many.
const FEWEST: u64 = 64;

/// Host ids in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Range {
    fn end(self) -> u64 {
        self.start.saturating_add(self.count)
    }

    fn overlap(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end().min(other.end()));
        (start < end).then(|| Self { start, count: end - start })
    }

    /// As `usermod` takes it.
    fn written(self) -> String {
        format!("{}-{}", self.start, self.end().saturating_sub(1))
    }
}

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Users,
    Groups,
}

impl Kind {
    const BOTH: [Self; 2] = [Self::Users, Self::Groups];

    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Users => "subuid",
            Self::Groups => "subgid",
        }
    }

    /// The file of accounts whose ids they are.
    fn accounts(self) -> &'static str {
        match self {
            Self::Users => "passwd",
            Self::Groups => "group",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Users => "subuids",
            Self::Groups => "subgids",
        }
    }
}

/// What a user has of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ids {
    /// Lines of this user, without what an earlier one of them has already.
    own: Vec<Range>,
    /// Everything that belongs to others, with who.
    others: Vec<(String, Range)>,
    /// Whether the file exists.
    present: bool,
}

/// The subordinate ids of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subordinate {
    user: String,
    uid: u32,
    users: Ids,
    groups: Ids,
    /// Smallest and largest id that may be given, and how many at once.
    bounds: (u64, u64, u64),
}

impl Subordinate {
    /// Reads what the files below `etc` say about a user.
    pub(super) fn read(etc: &Path, user: &str, uid: u32) -> Self {
        Self {
            user: if user.is_empty() { uid.to_string() } else { user.to_owned() },
            uid,
            users: ids(etc, Kind::Users, user, uid),
            groups: ids(etc, Kind::Groups, user, uid),
            bounds: bounds(etc),
        }
    }

    fn of(&self, kind: Kind) -> &Ids {
        match kind {
            Kind::Users => &self.users,
            Kind::Groups => &self.groups,
        }
    }

    /// The user's ranges, for an id map.
    pub(super) fn ranges(&self, kind: Kind) -> &[Range] {
        &self.of(kind).own
    }

    /// How many ids of both kinds there are, split ranges added up; `None` when there are none.
    pub(super) fn count(&self) -> Option<u32> {
        let sum = |kind| self.ranges(kind).iter().map(|range| range.count).sum::<u64>();
        let count = sum(Kind::Users).min(sum(Kind::Groups));
        (count > 0).then(|| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Why the ranges cannot be used, and the command that changes it.
    pub(super) fn problem(&self) -> Option<(String, String)> {
        for kind in Kind::BOTH {
            let ids = self.of(kind);
            for (whose, theirs) in &ids.others {
                if let Some(shared) = ids.own.iter().find_map(|own| own.overlap(*theirs)) {
                    let (file, user, shared) = (kind.file(), &self.user, shared.written());
                    let why = format!(
                        "/etc/{file} assigns the ids {shared} to {user} and also to {whose}: each could kill the other's processes"
                    );
                    return Some((why, self.fix()));
                }
            }
        }
        if self.count().is_none_or(|count| u64::from(count) < FEWEST) {
            let why = format!("{} has {} subordinate ids", self.user, self.count().unwrap_or(0));
            return Some((why, self.fix()));
        }
        None
    }

    /// The command that assigns a free range to the user, and removes those that overlap with others.
    pub(super) fn fix(&self) -> String {
        let Some(free) = self.free() else {
            let (least, most, _) = self.bounds;
            return format!(
                "no range of ids between {least} and {most} is free: raise SUB_UID_MAX and SUB_GID_MAX in /etc/login.defs"
            );
        };
        let mut command = String::new();
        if Kind::BOTH.iter().any(|kind| !self.of(*kind).present) {
            // Without its files `usermod` gives no such ids.
            command.push_str("sudo touch /etc/subuid /etc/subgid && ");
        }
        command.push_str("sudo usermod");
        for kind in Kind::BOTH {
            let ids = self.of(kind);
            let shared = ids
                .own
                .iter()
                .filter(|own| ids.others.iter().any(|(_, other)| own.overlap(*other).is_some()));
            for range in shared {
                command.push_str(&format!(" --del-{} {}", kind.option(), range.written()));
            }
        }
        for kind in Kind::BOTH {
            command.push_str(&format!(" --add-{} {}", kind.option(), free.written()));
        }
        format!("{command} {}", self.user)
    }

    /// A range that is free, both as user ids and as group ids. The search starts at an offset derived from
    /// the user's id, so that two users who are given a command at the same time get different ranges.
    fn free(&self) -> Option<Range> {
        let (least, most, count) = self.bounds;
        let mut taken: Vec<Range> = Vec::new();
        for kind in Kind::BOTH {
            let ids = self.of(kind);
            taken.extend(ids.own.iter().chain(ids.others.iter().map(|(_, range)| range)));
        }
        taken.sort_by_key(|range| range.start);
        let slots = (most.saturating_add(1).saturating_sub(least) / count).max(1);
        let own = least + u64::from(self.uid) % slots * count;
        [own, least].into_iter().find_map(|start| {
            let mut candidate = Range { start, count };
            for range in &taken {
                if candidate.overlap(*range).is_some() {
                    candidate.start = range.end();
                }
            }
            (candidate.end() <= most.saturating_add(1)).then_some(candidate)
        })
    }
}

fn ids(etc: &Path, kind: Kind, user: &str, uid: u32) -> Ids {
    let text = fs::read_to_string(etc.join(kind.file()));
    let mut ids = Ids { present: text.is_ok(), ..Ids::default() };
    for line in text.unwrap_or_default().lines() {
        let mut parts = line.trim().split(':');
        let (Some(owner), Some(start), Some(count)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (Ok(start), Ok(count)) = (start.trim().parse(), count.trim().parse()) else { continue };
        let range = Range { start, count };
        if owner.starts_with('#') || count == 0 {
            continue;
        }
        let own =
            owner == user && !user.is_empty() || owner.parse() == Ok(uid) || uid_of(etc, owner) == Some(uid);
        if own {
            add(&mut ids.own, range);
        } else {
            ids.others.push((owner.to_owned(), range));
        }
    }
    // The id of an account is never a subordinate id.
    let accounts = fs::read_to_string(etc.join(kind.accounts())).unwrap_or_default();
    for line in accounts.lines() {
        let mut parts = line.split(':');
        if let (Some(name), Some(Ok(id))) = (parts.next(), parts.nth(1).map(str::parse::<u64>)) {
            ids.others.push((format!("the account {name}"), Range { start: id, count: 1 }));
        }
    }
    ids.own.truncate(MOST_RANGES);
    ids
}

/// Adds the parts of a range that are not there yet: a user may have the same ids by name and by number.
/// Parts of two lines stay apart, because `newuidmap` looks for each in one line.
fn add(own: &mut Vec<Range>, range: Range) {
    let mut parts = vec![range];
    for known in own.iter() {
        parts = parts
            .into_iter()
            .flat_map(|part| match part.overlap(*known) {
                None => vec![part],
                Some(shared) => [
                    Range { start: part.start, count: shared.start - part.start },
                    Range { start: shared.end(), count: part.end() - shared.end() },
                ]
                .into_iter()
                .filter(|rest| rest.count > 0)
                .collect(),
            })
            .collect();
    }
    own.extend(parts);
}

fn uid_of(etc: &Path, user: &str) -> Option<u32> {
    let text = fs::read_to_string(etc.join("passwd")).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(2)?.parse().ok()
}

/// What `/etc/login.defs` says about new ranges, with the defaults of the system's tools.
fn bounds(etc: &Path) -> (u64, u64, u64) {
    let text = fs::read_to_string(etc.join("login.defs")).unwrap_or_default();
    let said = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next())?;
        line.parse::<u64>().ok()
    };
    let both = |users: &str, groups: &str, default: u64, choose: fn(u64, u64) -> u64| {
        choose(said(users).unwrap_or(default), said(groups).unwrap_or(default))
    };
    let least = both("SUB_UID_MIN", "SUB_GID_MIN", 100_000, u64::max);
    let most = both("SUB_UID_MAX", "SUB_GID_MAX", 600_100_000, u64::min);
    let count = both("SUB_UID_COUNT", "SUB_GID_COUNT", 65_536, u64::max).max(FEWEST);
    (least, most, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Subordinate {
        let etc = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(etc.path().join(name), text).unwrap();
        }
        Subordinate::read(etc.path(), "bee", 1001)
    }

    const ACCOUNTS: &str = "root:x:0:0::/:/bin/sh\nant:x:1000:1000::/:/bin/sh\nbee:x:1001:1001::/:/bin/sh\n";

    #[test]
    fn the_printed_range_is_one_that_nobody_has() {
        let found = read(&[
            ("passwd", ACCOUNTS),
            ("subuid", "ant:100000:65536\ncat:165536:1000\n"),
            ("subgid", "ant:100000:65536\ndog:170000:65536\n"),
            ("login.defs", "SUB_UID_MAX 400000\n"),
        ]);
        assert_eq!(found.count(), None);
        let (_, fix) = found.problem().unwrap();
        assert_eq!(fix, "sudo usermod --add-subuids 235536-301071 --add-subgids 235536-301071 bee");
        // Accounts in the way of it, and the system's own choice of where ranges are.
        let found = read(&[
            ("passwd", "far:x:50310000:1::/:/bin/sh\n"),
            ("subuid", ""),
            ("subgid", ""),
            (
                "login.defs",
                "SUB_UID_MIN 250000\nSUB_GID_MIN\t260000\n#SUB_UID_MAX 1\nSUB_UID_COUNT 50000\nSUB_GID_COUNT 50000\n",
            ),
        ]);
        assert_eq!(
            found.fix(),
            "sudo usermod --add-subuids 50310001-50360000 --add-subgids 50310001-50360000 bee"
        );
        let found = read(&[("login.defs", "SUB_UID_MAX 150000\n")]);
        assert!(found.fix().contains("no range"), "{}", found.fix());
    }

    #[test]
    fn users_who_ask_at_the_same_time_are_given_different_ranges() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("passwd"), ACCOUNTS).unwrap();
        let free = |user, uid| Subordinate::read(etc.path(), user, uid).free().unwrap();
        let mut given = [free("ant", 1000), free("bee", 1001), free("far", 54321), free("root", 0)];
        given.sort_by_key(|range| range.start);
        assert!(given.windows(2).all(|pair| pair[0].overlap(pair[1]).is_none()), "{given:?}");
    }

    #[test]
    fn without_the_files_they_are_made_first() {
        let fix = read(&[("passwd", ACCOUNTS)]).fix();
        assert!(
            fix.starts_with("sudo touch /etc/subuid /etc/subgid && sudo usermod --add-subuids 65701536-"),
            "{fix}"
        );
    }

    #[test]
    fn a_range_of_another_user_is_refused() {
        let shared = [("subuid", "ant:100000:65536\nbee:165535:65536\n"), ("subgid", "bee:200000:65536\n")];
        let (why, fix) = read(&[&shared[..], &[("passwd", ACCOUNTS)]].concat()).problem().unwrap();
        assert!(why.contains("also to ant") && why.contains("165535-165535"), "{why}");
        assert!(fix.starts_with("sudo usermod --del-subuids 165535-231070 --add-subuids 65701536-"), "{fix}");
        // Also by number, and also an account's own id.
        let by_number = [("subuid", "1000:100:100\nbee:150:100\n"), ("subgid", "bee:150:100\n")];
        assert!(read(&by_number).problem().unwrap().0.contains("also to 1000"));
        let account = [("passwd", ACCOUNTS), ("subuid", "bee:900:65536\n"), ("subgid", "bee:900000:65536\n")];
        assert!(read(&account).problem().unwrap().0.contains("the account"));
        let alone =
            [("passwd", ACCOUNTS), ("subuid", "ant:1:9\nbee:100000:64\n"), ("subgid", "1001:100000:64\n")];
        assert_eq!(read(&alone).problem(), None);
    }

    #[test]
    fn split_ranges_add_up_and_count_once() {
        let files = [
            ("passwd", ACCOUNTS),
            (
                "subuid",
                "bee:100000:30\n# bee:1:9\nbad line\nant:100030:20\n1001:100050:34\nbee:100000:30\nbee:100020:10\n",
            ),
            ("subgid", "bee:100000:30\n1001:100040:40\n"),
        ];
        let found = read(&files);
        assert_eq!(found.count(), Some(64));
        assert_eq!(
            found.ranges(Kind::Users),
            [Range { start: 100_000, count: 30 }, Range { start: 100_050, count: 34 }]
        );
        assert_eq!(found.problem(), None);
        let grown = [files[0], ("subuid", "bee:10:10\nbee:15:10\n"), files[2]];
        assert_eq!(
            read(&grown).ranges(Kind::Users),
            [Range { start: 10, count: 10 }, Range { start: 20, count: 5 }]
        );
    }
}
