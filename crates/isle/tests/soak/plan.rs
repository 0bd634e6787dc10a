//! What is done, decided by a seed alone: the n-th operation of a client is the same in every run,
//! whatever became of those before it.

use std::time::Duration;

/// Names each client uses; nobody else does.
pub(crate) const NAMES: u64 = 3;

/// One thing a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Appends a number to a file.
    Append { name: u64 },
    /// Writes two files at once.
    Write { name: u64 },
    /// Reads everything back and compares.
    Look { name: u64 },
    /// Removes one file.
    Remove { name: u64 },
    /// Makes it by name.
    Create { name: u64 },
    /// Destroys it; its workspace stays.
    Destroy { name: u64 },
    /// Destroys it with its workspace.
    Wipe { name: u64 },
    /// Starts a command and ends it.
    StartAndKill { name: u64 },
    /// Starts a command and waits for it.
    StartAndWait { name: u64, lines: u64 },
    /// A command that must end by its time limit.
    TimeOut { name: u64 },
    /// A sandbox for one command.
    OneShot { lines: u64 },
    /// Pauses it and lets it go on.
    PauseAndResume { name: u64 },
    /// A sandbox that ends by itself.
    Brief { number: u64 },
    /// Spawns a child, uses it, and ends it or leaves it to its parent's end.
    Family { name: u64, ends: bool },
    /// Makes it anew, with its workspace or an empty one.
    Reset { name: u64, wipe: bool },
    /// Looks for a sandbox of another namespace.
    Cross,
    /// Lists, history, audit, health.
    Browse,
}

impl Operation {
    pub(crate) const KINDS: u32 = 17;

    /// A number per kind.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Append { .. } => 0,
            Self::Write { .. } => 1,
            Self::Look { .. } => 2,
            Self::Remove { .. } => 3,
            Self::Create { .. } => 4,
            Self::Destroy { .. } => 5,
            Self::Wipe { .. } => 6,
            Self::StartAndKill { .. } => 7,
            Self::StartAndWait { .. } => 8,
            Self::TimeOut { .. } => 9,
            Self::OneShot { .. } => 10,
            Self::Browse => 11,
            Self::PauseAndResume { .. } => 12,
            Self::Brief { .. } => 13,
            Self::Family { .. } => 14,
            Self::Reset { .. } => 15,
            Self::Cross => 16,
        }
    }
}

/// One thing the nemesis does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    /// `kill -9` of the daemon, and a new start.
    Kill,
    /// The daemon stands still for a while.
    Pause(Duration),
    /// Its disk is full for a while.
    Fill(Duration),
    /// It is ended politely and started again.
    Restart,
}

/// Numbers that look random.
fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut mixed = state ^ part.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// The n-th operation of a client.
pub(crate) fn operation(seed: u64, client: u64, index: u64) -> Operation {
    let number = |which: u64| mix(&[seed, client, index, which]);
    let name = number(1) % NAMES;
    match number(0) % 100 {
        0..=24 => Operation::Append { name },
        25..=37 => Operation::Write { name },
        38..=52 => Operation::Look { name },
        53..=57 => Operation::Remove { name },
        58..=62 => Operation::Create { name },
        63..=67 => Operation::Destroy { name },
        68..=70 => Operation::Wipe { name },
        71..=75 => Operation::StartAndKill { name },
        76..=83 => Operation::StartAndWait { name, lines: number(2) % 5_000 },
        84..=85 => Operation::TimeOut { name },
        86..=89 => Operation::OneShot { lines: number(2) % 5_000 },
        90..=91 => Operation::PauseAndResume { name },
        92 => Operation::Brief { number: index },
        93..=94 => Operation::Family { name, ends: number(2).is_multiple_of(2) },
        95..=96 => Operation::Reset { name, wipe: number(2).is_multiple_of(2) },
        97 => Operation::Cross,
        _ => Operation::Browse,
    }
}

/// The n-th deed of the nemesis.
pub(crate) fn deed(seed: u64, index: u64) -> Deed {
    let number = |which: u64| mix(&[seed, u64::MAX, index, which]);
    let while_ms = Duration::from_millis(20 + number(1) % 400);
    match number(0) % 10 {
        0..=3 => Deed::Kill,
        4..=6 => Deed::Pause(while_ms),
        7..=8 => Deed::Fill(while_ms),
        _ => Deed::Restart,
    }
}

/// How long the nemesis lets everybody work before its n-th deed.
pub(crate) fn peace(seed: u64, index: u64) -> Duration {
    Duration::from_millis(100 + mix(&[seed, u64::MAX, index, 2]) % 900)
}
