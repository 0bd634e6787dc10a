//! The published table in `docs/operate/containment.md`: one row per attack, one column per place. Checked by
//! every run where the kernel is the one it was made on; rewritten by `make containment`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Read, Seek};
use std::path::Path;

use isle_probe::Verdict;

use crate::harness::skip_part;
use crate::range::Results;

const COLUMNS: &[&str] = &[
    "plain, root",
    "plain, user",
    "bubblewrap",
    "docker",
    "container, root",
    "container, user",
    "container with a grant, root",
    "container with a grant, user",
    "process, root",
    "process, user",
];
const BEGIN: &str = "<!-- attacks: made by `make containment` -->\n";
const END: &str = "<!-- end of attacks -->\n";
const KERNEL: &str = "Made on Linux ";

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Contained => "✓",
        Verdict::Escaped => "✗",
        Verdict::NotTestable => "–",
    }
}

/// Name → column → mark.
type Cells = BTreeMap<String, BTreeMap<String, String>>;

fn read(page: &str) -> (String, Cells) {
    let inside =
        page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(inside, _)| inside);
    let kernel = inside
        .lines()
        .find_map(|line| line.strip_prefix(KERNEL))
        .map_or_else(String::new, |rest| rest.trim_end_matches('.').to_owned());
    let parts = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|part| part.trim().to_owned()).collect()
    };
    // By what stands above them: the page may have been made when there were other columns.
    let header = inside.lines().find(|line| line.starts_with("| attack |")).map(parts).unwrap_or_default();
    let cells = inside.lines().filter(|line| line.starts_with("| `")).map(|row| {
        let row = parts(row);
        let marks = header.iter().zip(&row).skip(2).map(|(column, cell)| (column.clone(), cell.clone()));
        (row[0].trim_matches('`').to_owned(), marks.collect())
    });
    (kernel, cells.collect())
}

fn write_page(page: &str, cells: &Cells) -> String {
    let mut text = format!("{KERNEL}{}.\n\n| attack | tries to |", this_kernel());
    for column in COLUMNS {
        write!(text, " {column} |").unwrap();
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(COLUMNS.len()));
    let empty = BTreeMap::new();
    let mark = |name: &str, column: &str| {
        cells.get(name).unwrap_or(&empty).get(column).map_or("", String::as_str).to_owned()
    };
    for attack in isle_probe::attacks() {
        write!(text, "\n| `{}` | {} |", attack.name, attack.tries).unwrap();
        for column in COLUMNS {
            write!(text, " {} |", mark(attack.name, column)).unwrap();
        }
    }
    text.push_str("\n| **got through** | |");
    for column in COLUMNS {
        let tried = isle_probe::attacks().filter(|attack| !mark(attack.name, column).is_empty()).count();
        let open = isle_probe::attacks().filter(|attack| mark(attack.name, column) == "✗").count();
        let sum = if tried == 0 { String::new() } else { format!("**{open}**") };
        write!(text, " {sum} |").unwrap();
    }
    text.push('\n');
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{BEGIN}{text}{END}{after}")
}

/// Major and minor version: within it a kernel's surface stays.
fn this_kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Writes a column where somebody asked for that.
pub(crate) fn write(column: &str, results: &Results) -> bool {
    let Some(path) = std::env::var_os("ISLE_CONTAINMENT_TABLE").filter(|path| !path.is_empty()) else {
        return false;
    };
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    // Several columns are made at the same time.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut page = String::new();
    file.read_to_string(&mut page).unwrap();
    let (_, mut cells) = read(&page);
    for attack in isle_probe::attacks() {
        let cell = results.get(attack.name).map_or("", |(verdict, _)| mark(*verdict));
        cells.entry(attack.name.to_owned()).or_default().insert(column.to_owned(), cell.to_owned());
    }
    let page = write_page(&page, &cells);
    file.rewind().unwrap();
    file.set_len(0).unwrap();
    std::io::Write::write_all(&mut file, page.as_bytes()).unwrap();
    true
}

/// Compares a column with the published one, or writes it.
pub(crate) fn check(column: &str, results: &Results) {
    if write(column, results) {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/containment.md");
    let (kernel, cells) = read(&std::fs::read_to_string(page).unwrap());
    if kernel != this_kernel() {
        skip_part!("the table was made on Linux {kernel}, this is {}", this_kernel());
        return;
    }
    let published = |name: &str| cells.get(name).and_then(|row| row.get(column)).map_or("", String::as_str);
    // An ordinary user's limits depend on what was delegated; the gates know what is right here.
    let limits_differ =
        isle_probe::attacks().filter(|attack| attack.name.starts_with("res.")).any(|attack| {
            results.get(attack.name).is_some_and(|(verdict, _)| published(attack.name) != mark(*verdict))
        });
    if limits_differ && column.ends_with("user") {
        skip_part!("this user has other limits than the one the table was made with");
        return;
    }
    let wrong: Vec<String> = results
        .iter()
        .filter(|(name, (verdict, _))| published(name) != mark(*verdict))
        .map(|(name, (verdict, seen))| {
            format!("{name}: {} here ({seen}), {:?} there", mark(*verdict), published(name))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "column {column:?} of docs/operate/containment.md is not what was seen; `make containment` makes it anew: {wrong:#?}"
    );
}
