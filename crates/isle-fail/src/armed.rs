//! Armed failpoints. A test sets a directory in `ISLE_FAILPOINTS` and writes the file `armed` there
//! (`create.made=die@2`: exit at the second pass of that point from now on; `@2+`: at every pass from the
//! second on). The file `passed` lists every point in the order of its passes, and `fired` exists after the
//! failpoint fired. The file `wall_clock` moves the wall clock by a number of milliseconds.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use crate::Point;

/// The directory of this process, if a test has set one.
fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY.get_or_init(|| std::env::var_os("ISLE_FAILPOINTS").map(PathBuf::from)).as_deref()
}

/// What was armed at the last read, and how often its point was passed since.
static COUNT: Mutex<(String, u32)> = Mutex::new((String::new(), 0));

pub(crate) fn hit(point: Point) -> io::Result<()> {
    let Some(directory) = directory() else { return Ok(()) };
    // Serialized: the order in `passed` is the order of counting.
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    note(&directory.join("passed"), point.name())?;
    let file = directory.join("armed");
    let Ok(armed) = fs::read_to_string(&file) else {
        count.0.clear();
        return Ok(());
    };
    let Some((name, action, number)) = parse(&armed) else {
        return Err(io::Error::other(format!("{armed:?} is not a failpoint")));
    };
    if count.0 != armed {
        *count = (armed.clone(), 0);
    }
    if name != point.name() {
        return Ok(());
    }
    count.1 += 1;
    match number {
        Number::Once(number) if count.1 == number => fs::rename(&file, directory.join("fired"))?,
        Number::From(number) if count.1 >= number => note(&directory.join("fired"), &armed)?,
        Number::Once(_) | Number::From(_) => return Ok(()),
    }
    match action {
        "die" => die(),
        "full" => Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())),
        _ => Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
    }
}

/// At which pass of a point it fires.
enum Number {
    Once(u32),
    From(u32),
}

fn parse(armed: &str) -> Option<(&str, &str, Number)> {
    let (name, rest) = armed.trim().split_once('=')?;
    let (action, number) = rest.split_once('@').unwrap_or((rest, "1"));
    let number = match number.strip_suffix('+') {
        Some(number) => Number::From(number.parse().ok()?),
        None => Number::Once(number.parse().ok()?),
    };
    matches!(action, "die" | "fail" | "full").then_some((name, action, number))
}

fn note(file: &Path, line: &str) -> io::Result<()> {
    fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}

/// Exits like a crash: nothing is flushed, nothing is dropped.
fn die() -> io::Result<()> {
    kill_process(getpid(), Signal::KILL)?;
    loop {
        std::thread::park();
    }
}

pub(crate) fn wall_clock_shift_ms() -> i64 {
    let shift = || fs::read_to_string(directory()?.join("wall_clock")).ok()?.trim().parse().ok();
    shift().unwrap_or(0)
}
