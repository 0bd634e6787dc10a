//! Looking at one process through `/proc`, as lines that are the same on every host: ids, namespaces and
//! directories are told by whose they are, not by their numbers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Everything that is known about a process: name of a fact and the fact.
pub(crate) type Posture = BTreeMap<String, String>;

/// First host id of sandboxes when the daemon is root.
const ROOT_BASE: u32 = 0x7000_0000;

/// Limits that Isle leaves as it finds them.
const INHERITED: [&str; 7] = [
    "Max cpu time",
    "Max file locks",
    "Max realtime timeout",
    "Max resident set",
    "Max stack size",
    "Max address space",
    "Max processes",
];

/// Looks at `pid`. `daemon` and `agent` are the processes whose namespaces and limits it is compared with.
pub(crate) fn look(pid: i32, daemon: i32, agent: Option<i32>) -> Posture {
    let mut posture = Posture::new();
    let mut note = |key: &str, value: String| {
        posture.insert(key.to_owned(), value);
    };
    let status = status(pid);
    let field = |name: &str| status.get(name).cloned().unwrap_or_default();

    for (file, name) in [("uid_map", "Uid"), ("gid_map", "Gid")] {
        let map = map(pid, file);
        let ids: Vec<String> =
            field(name).split_whitespace().map(|id| inside(&map, id.parse().unwrap())).collect();
        note(&name.to_lowercase(), ids.join(" "));
        note(file, map.iter().map(|one| one.show(daemon)).collect::<Vec<_>>().join(", "));
    }
    note("groups", field("Groups"));
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        note(name, field(name).trim_start_matches('0').to_owned());
    }
    for name in ["NoNewPrivs", "Seccomp", "Seccomp_filters", "Umask", "Threads"] {
        note(name, field(name));
    }
    for name in ["SigBlk", "SigIgn"] {
        note(name, field(name).trim_start_matches('0').to_owned());
    }
    note("cgroups", cgroups(pid));
    let stat = stat(pid);
    note("session", if stat.session == pid { "leads its own".into() } else { "another's".to_owned() });
    note("terminal", if stat.terminal == 0 { "none".into() } else { "one".to_owned() });
    note("dumpable", dumpable(pid, &field("Uid")).to_owned());
    note(
        "oom_score_adj",
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned(),
    );
    let inherited = limits(daemon);
    for (name, value) in limits(pid) {
        let same = INHERITED.contains(&name.as_str()) && inherited.get(&name) == Some(&value);
        note(&name, if same { "as the daemon's".into() } else { value });
    }
    let private = Private::of(pid, daemon);
    // Who may not be dumped may not be looked into by anybody but the host's root.
    note("looked into", if private.links.is_empty() { "no".into() } else { "yes".to_owned() });
    if private.links.is_empty() {
        return posture;
    }
    for (number, what) in &private.descriptors {
        note(&format!("descriptor {number:03}"), what.clone());
    }
    for (name, target) in &private.links {
        note(name, without_names(target));
    }
    note("environment", private.environment.join(" "));
    let us = Private::of(i32::try_from(std::process::id()).unwrap(), daemon);
    let first = agent.filter(|&agent| agent != pid).map(|agent| Private::of(agent, daemon));
    for (kind, own) in &private.namespaces {
        let whose = if Some(own) == us.namespaces.get(kind) {
            "the host's"
        } else if first.as_ref().is_some_and(|first| Some(own) == first.namespaces.get(kind)) {
            "the sandbox's"
        } else {
            "its own"
        };
        note(&format!("namespace {kind}"), whose.to_owned());
    }
    posture
}

/// Whether it waits for something.
pub(crate) fn is_asleep(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Fails with what differs, line by line.
pub(crate) fn assert_posture(who: &str, found: &Posture, expected: &Posture) {
    let mut differences = Vec::new();
    for key in found.keys().chain(expected.keys().filter(|key| !found.contains_key(*key))) {
        let (found, expected) = (found.get(key), expected.get(key));
        if found != expected {
            let show =
                |value: Option<&String>| value.map_or("(nothing)".to_owned(), |value| format!("{value:?}"));
            differences.push(format!("  {key}: found {}, expected {}", show(found), show(expected)));
        }
    }
    assert!(differences.is_empty(), "the posture of {who} differs:\n{}", differences.join("\n"));
}

/// Facts written as `key: value` lines.
pub(crate) fn posture(text: &str) -> Posture {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("no fact: {line}"));
            (key.to_owned(), value.trim().to_owned())
        })
        .collect()
}

pub(crate) fn status(pid: i32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

/// One extent of an id map, as the host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) inside: u32,
    pub(crate) outside: u32,
    pub(crate) length: u32,
}

impl Extent {
    fn show(self, daemon: i32) -> String {
        let uid: u32 = status(daemon)["Uid"].split(' ').next().unwrap().parse().unwrap();
        let range = self.outside..self.outside.saturating_add(self.length);
        let whose = if self.length == u32::MAX {
            "the host's"
        } else if range.contains(&0) || range.contains(&uid) {
            "the daemon's"
        } else if self.outside >= 1000 {
            "private"
        } else {
            "the system's"
        };
        format!("{}×{} {whose}", self.inside, self.length)
    }
}

pub(crate) fn map(pid: i32, file: &str) -> Vec<Extent> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    text.lines()
        .map(|line| {
            let numbers: Vec<u32> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
            Extent { inside: numbers[0], outside: numbers[1], length: numbers[2] }
        })
        .collect()
}

/// A host id as the sandbox sees it; without a map of its own, by whose it is.
fn inside(map: &[Extent], id: u32) -> String {
    if let [only] = map
        && only.length == u32::MAX
    {
        let own = rustix::process::getuid().as_raw();
        return match id {
            0 => "root".into(),
            id if id == own => "the daemon's".into(),
            id if id >= ROOT_BASE => "private".into(),
            id => id.to_string(),
        };
    }
    let found = map.iter().find(|one| id >= one.outside && id - one.outside < one.length);
    found.map_or_else(|| format!("outside {id}"), |one| (one.inside + (id - one.outside)).to_string())
}

/// What only the owner of a process may see.
#[derive(Debug, Default)]
pub(crate) struct Private {
    /// By number, what they are.
    pub(crate) descriptors: BTreeMap<u32, String>,
    pub(crate) links: BTreeMap<String, String>,
    pub(crate) namespaces: BTreeMap<String, String>,
    /// Names only.
    pub(crate) environment: Vec<String>,
    pub(crate) mounts: Vec<String>,
}

impl Private {
    /// Looks as this user, and then with the rights of the fork server, whose user namespace knows all
    /// ids of an ordinary user's sandboxes. Empty for a process that may not be looked into even so.
    pub(crate) fn of(pid: i32, daemon: i32) -> Self {
        let plain = Self::by(Command::new("sh"), pid);
        if !plain.links.is_empty() || rustix::process::geteuid().is_root() {
            return plain;
        }
        let Some(server) = fork_server_of(daemon) else { return plain };
        let mut command = Command::new("nsenter");
        command.args(["--user", "--preserve-credentials", "--target", &server.to_string(), "sh"]);
        Self::by(command, pid)
    }

    fn by(mut command: Command, pid: i32) -> Self {
        const LOOK: &str = r#"cd "/proc/$1" || exit
            readlink exe > /dev/null && [ -r fd ] && [ -r ns ] || exit
            for f in fd/*; do echo "fd ${f#fd/} $(readlink "$f")"; done
            for n in ns/*; do echo "ns ${n#ns/} $(readlink "$n")"; done
            for l in cwd root exe; do echo "link $l $(readlink "$l")"; done
            tr '\0' '\n' < environ | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/variable \1/p'
            sed 's/^/mount /' mountinfo"#;
        let output = command.args(["-c", LOOK, "sh", &pid.to_string()]).output().unwrap();
        let mut private = Self::default();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((kind, rest)) = line.split_once(' ') else { continue };
            match (kind, rest.split_once(' ')) {
                ("fd", Some((number, target))) => {
                    if let Ok(number) = number.parse() {
                        private.descriptors.insert(number, shown(target));
                    }
                }
                ("ns", Some((kind, target))) => {
                    private.namespaces.insert(kind.to_owned(), target.to_owned());
                }
                ("link", Some((name, target))) => {
                    private.links.insert(name.to_owned(), target.to_owned());
                }
                ("variable", _) => private.environment.push(rest.to_owned()),
                ("mount", _) => private.mounts.push(rest.to_owned()),
                _ => {}
            }
        }
        private.environment.sort();
        private
    }
}

/// A path without what is different every time: the directory of a root daemon, and one-shots.
fn without_names(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with("sb_") { "ONE-SHOT" } else { part });
    let path = parts.collect::<Vec<_>>().join("/");
    match path.strip_prefix("/var/lib/isle-").and_then(|rest| rest.split_once('/')) {
        Some((_, rest)) => format!("PRIVATE/{rest}"),
        None => path,
    }
}

/// A descriptor without the number of its pipe, socket or process.
fn shown(target: &str) -> String {
    if let Some((number, entry)) = target.strip_prefix("/proc/").and_then(|rest| rest.split_once('/'))
        && number.parse::<u32>().is_ok()
    {
        return format!("/proc/…/{entry}");
    }
    match target.split_once(":[") {
        Some(("anon_inode", kind)) => kind.trim_end_matches(']').to_owned(),
        Some((kind, _)) => kind.to_owned(),
        None => target.trim_start_matches("anon_inode:").to_owned(),
    }
}

/// The fork server that makes sandboxes with namespaces.
pub(crate) fn fork_server_of(daemon: i32) -> Option<i32> {
    children(daemon).into_iter().find(|&pid| {
        let words = command_line(pid);
        words.starts_with("isle-fork-server") && !words.ends_with(" process")
    })
}

/// Which controllers it is in a cgroup of its sandbox for; everything else must be the daemon's own.
fn cgroups(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let mut own: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_own = path.contains("/isle-") && path.rsplit('/').next()?.starts_with("sb_");
            is_own.then_some(if controllers.is_empty() { "unified" } else { controllers })
        })
        .collect();
    own.sort_unstable();
    own.join(" ")
}

struct Stat {
    session: i32,
    terminal: i32,
}

fn stat(pid: i32) -> Stat {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    Stat { session: fields[3].parse().unwrap(), terminal: fields[4].parse().unwrap() }
}

/// Files in `/proc` of a process that may not be dumped belong to root, and not to itself.
fn dumpable(pid: i32, ids: &str) -> &'static str {
    let owner = fs::metadata(format!("/proc/{pid}/stat")).unwrap().uid();
    match ids.split(' ').nth(1).unwrap().parse::<u32>().unwrap() {
        0 => "cannot be told of root",
        effective if effective == owner => "yes",
        _ => "no",
    }
}

fn limits(pid: i32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    text.lines()
        .skip(1)
        .map(|line| {
            let (name, rest) = line.split_at(26.min(line.len()));
            let values: Vec<&str> = rest.split_whitespace().take(2).collect();
            (name.trim().to_owned(), values.join(" "))
        })
        .collect()
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> i32 {
    status(pid)["PPid"].parse().unwrap()
}

/// Its command line, words joined by spaces.
pub(crate) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// Children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&other: &i32| {
            fs::read_to_string(format!("/proc/{other}/status"))
                .is_ok_and(|text| text.contains(&format!("\nPPid:\t{pid}\n")))
        })
        .collect()
}
