//! Draws the table: columns, sort order, and the rows that fit in the window.

use std::cmp::Ordering;

use isle_client::Result;
use isle_core::{Code, Error};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::keys::Key;
use super::sample::{Row, Snapshot};
use crate::output::{Paint, Table, escaped, human_bytes};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    State,
    Tier,
    Cpu,
    Memory,
    Pids,
    Io,
    Disk,
    Running,
    Runs,
    Uptime,
    Left,
}

impl Column {
    const ALL: [Self; 12] = [
        Self::Name,
        Self::State,
        Self::Tier,
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::Io,
        Self::Disk,
        Self::Running,
        Self::Runs,
        Self::Uptime,
        Self::Left,
    ];

    /// Columns dropped in a narrow window, in this order; the name is always shown.
    const DISPENSABLE: [Self; 11] = [
        Self::Tier,
        Self::Runs,
        Self::Uptime,
        Self::Left,
        Self::Disk,
        Self::State,
        Self::Io,
        Self::Running,
        Self::Pids,
        Self::Memory,
        Self::Cpu,
    ];

    fn heading(self) -> &'static str {
        match self {
            Self::Name => "SANDBOX",
            Self::State => "STATE",
            Self::Tier => "TIER",
            Self::Cpu => "CPU%",
            Self::Memory => "MEMORY",
            Self::Pids => "PIDS",
            Self::Io => "IO/S",
            Self::Disk => "DISK",
            Self::Running => "RUNNING",
            Self::Runs => "RUNS",
            Self::Uptime => "UP",
            Self::Left => "LEFT",
        }
    }

    /// Name on the command line.
    fn option_name(self) -> String {
        let heading = self.heading();
        heading.strip_suffix('%').or(heading.strip_suffix("/S")).unwrap_or(heading).to_ascii_lowercase()
    }

    /// Whether larger values come first.
    fn descends(self) -> bool {
        !matches!(self, Self::Name | Self::State | Self::Tier | Self::Left)
    }

    fn cell(self, row: &Row) -> String {
        let unknown = || "-".to_owned();
        match self {
            Self::Name => row.name.clone(),
            Self::State => row.state.clone(),
            Self::Tier => row.tier.clone(),
            Self::Cpu => row.cpu_percent.map_or_else(unknown, |percent| format!("{percent:.1}")),
            Self::Memory => of(row.memory, row.memory_limit),
            Self::Pids => match (row.pids, row.pids_limit) {
                (Some(pids), Some(limit)) => format!("{pids}/{limit}"),
                (Some(pids), None) => pids.to_string(),
                (None, _) => unknown(),
            },
            Self::Io => match (row.read_rate, row.write_rate) {
                (Some(read), Some(written)) => format!("{}/{}", short(read), short(written)),
                _ => unknown(),
            },
            Self::Disk => of(row.disk, row.disk_limit),
            Self::Running => row.running.to_string(),
            Self::Runs => row.runs.to_string(),
            Self::Uptime => span(row.uptime_seconds),
            Self::Left => row.left_seconds.map_or_else(unknown, span),
        }
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        match self {
            Self::Name => Ordering::Equal,
            Self::State => one.state.cmp(&other.state),
            Self::Tier => one.tier.cmp(&other.tier),
            Self::Cpu => one.cpu_percent.unwrap_or(-1.0).total_cmp(&other.cpu_percent.unwrap_or(-1.0)),
            Self::Memory => one.memory.cmp(&other.memory),
            Self::Pids => one.pids.cmp(&other.pids),
            Self::Io => {
                let both =
                    |row: &Row| row.read_rate.zip(row.write_rate).map(|(read, written)| read + written);
                both(one).cmp(&both(other))
            }
            Self::Disk => one.disk.cmp(&other.disk),
            Self::Running => one.running.cmp(&other.running),
            Self::Runs => one.runs.cmp(&other.runs),
            Self::Uptime => one.uptime_seconds.cmp(&other.uptime_seconds),
            // Sandboxes without a deadline come last.
            Self::Left => one.left_seconds.unwrap_or(u64::MAX).cmp(&other.left_seconds.unwrap_or(u64::MAX)),
        }
    }
}

fn of(used: Option<u64>, limit: Option<u64>) -> String {
    match (used, limit) {
        (Some(used), Some(limit)) => format!("{}/{}", short(used), short(limit)),
        (Some(used), None) => short(used),
        (None, _) => "-".to_owned(),
    }
}

/// Bytes in short form: `1.5G`.
fn short(bytes: u64) -> String {
    let text = human_bytes(bytes);
    match text.split_once(' ') {
        Some((number, "B")) => number.to_owned(),
        Some((number, unit)) => {
            format!("{}{}", number.strip_suffix(".0").unwrap_or(number), unit.chars().next().unwrap_or(' '))
        }
        None => text,
    }
}

/// Seconds in short form: `5m03s`.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Sort order and scroll position.
#[derive(Debug)]
pub(super) struct View {
    column: Column,
    reversed: bool,
    /// Rows above the window.
    skipped: usize,
    /// Rows that fit in the window.
    page: usize,
}

/// A column as it is drawn.
struct Field {
    column: Column,
    heading: String,
    cells: Vec<String>,
    width: usize,
}

impl View {
    pub(super) fn sorted_by(name: &str) -> Result<Self> {
        let wanted = name.to_ascii_lowercase();
        let column =
            Column::ALL.into_iter().find(|column| column.option_name() == wanted).ok_or_else(|| {
                Error::new(Code::InvalidArgument, format!("unknown column: {name:?}"))
                    .detail("columns", Column::ALL.map(Column::option_name))
                    .next(format!("use one of {}", Column::ALL.map(Column::option_name).join(", ")))
            })?;
        Ok(Self { column, reversed: false, skipped: 0, page: 1 })
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: Key, rows: usize) {
        let at = Column::ALL.iter().position(|column| *column == self.column).unwrap_or(0);
        let columns = Column::ALL.len();
        match key {
            Key::Quit => {}
            Key::Column(column) => self.column = column,
            Key::NextColumn => self.column = Column::ALL[(at + 1) % columns],
            Key::PreviousColumn => self.column = Column::ALL[(at + columns - 1) % columns],
            Key::Reverse => self.reversed = !self.reversed,
            Key::Up => self.skipped = self.skipped.saturating_sub(1),
            Key::Down => self.skipped += 1,
            Key::PageUp => self.skipped = self.skipped.saturating_sub(self.page),
            Key::PageDown => self.skipped += self.page,
            Key::Home => self.skipped = 0,
            Key::End => self.skipped = rows,
        }
    }

    fn sorted<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = rows.iter().collect();
        rows.sort_by(|one, other| {
            let order = self.column.compare(one, other);
            let order = if self.column.descends() != self.reversed { order.reverse() } else { order };
            order.then_with(|| {
                let by_name = one.name.cmp(&other.name);
                if self.column == Column::Name && self.reversed { by_name.reverse() } else { by_name }
            })
        });
        rows
    }

    /// A column of the screen, as wide as its widest cell.
    fn field(&self, column: Column, rows: &[&Row]) -> Field {
        let mark = if column == self.column { if self.reversed { "↑" } else { "↓" } } else { "" };
        let heading = format!("{}{mark}", column.heading());
        let cells: Vec<String> = rows.iter().map(|row| escaped(&column.cell(row))).collect();
        let widest = cells.iter().map(|cell| cell.width()).max().unwrap_or(0);
        Field { column, width: widest.max(heading.width()), heading, cells }
    }

    /// A snapshot as a plain table.
    pub(super) fn plain(&self, snapshot: Snapshot) -> String {
        let mut table = Table::new(&Column::ALL.map(Column::heading));
        for row in self.sorted(&snapshot.rows) {
            table.row(Column::ALL.map(|column| column.cell(row)));
        }
        if table.is_empty() { "No sandboxes.\n".to_owned() } else { table.render(Paint::for_stdout()) }
    }

    /// A screen with this number of lines and columns.
    pub(super) fn screen(&mut self, snapshot: &Snapshot, lines: usize, columns: usize) -> String {
        let rows = self.sorted(&snapshot.rows);
        // Minus summary, headings and key help.
        self.page = lines.saturating_sub(3).max(1);
        self.skipped = self.skipped.min(rows.len().saturating_sub(self.page));
        let shown: Vec<&Row> = rows.iter().skip(self.skipped).take(self.page).copied().collect();
        let mut fields: Vec<Field> = Column::ALL.map(|column| self.field(column, &shown)).into();
        // Columns that do not fit are dropped completely: a truncated number is misleading.
        for column in Column::DISPENSABLE {
            let width: usize = fields.iter().map(|field| field.width + 2).sum();
            if width <= columns + 2 {
                break;
            }
            fields.retain(|field| field.column != column || column == self.column);
        }
        let line = |cell: &dyn Fn(&Field) -> String| {
            let mut text = String::new();
            for field in &fields {
                let cell = cell(field);
                text.push_str(&cell);
                text.push_str(&" ".repeat(field.width + 2 - cell.width()));
            }
            text
        };
        let mut screen = String::from("\u{1b}[H");
        let mut put = |text: &str, inverse: bool, last: bool| {
            let text = fit(text, columns);
            if inverse {
                // Padded to the edge, so that the line is a bar.
                let rest = " ".repeat(columns.saturating_sub(text.width()));
                screen.push_str(&format!("\u{1b}[7m{text}{rest}\u{1b}[0m\u{1b}[K"));
            } else {
                screen.push_str(&format!("{text}\u{1b}[K"));
            }
            if !last {
                screen.push_str("\r\n");
            }
        };
        let counted = match snapshot.rows.len() < snapshot.total {
            true => format!("{} of {}", snapshot.rows.len(), snapshot.total),
            false => snapshot.total.to_string(),
        };
        let summary = format!(
            "isle: {counted} sandboxes, {} one-shots, {} running, {} waiting, up {}",
            snapshot.one_shots,
            snapshot.running,
            snapshot.waiting,
            span(snapshot.uptime_seconds)
        );
        put(&summary, false, false);
        put(&line(&|field| field.heading.clone()), true, false);
        for index in 0..shown.len() {
            put(&line(&|field| field.cells[index].clone()), false, false);
        }
        for _ in shown.len()..self.page {
            put("", false, false);
        }
        put("q quit  c m p i d n ←→ sort  r reverse  ↑↓ scroll", false, true);
        screen
    }
}

/// The text truncated to the width.
fn fit(text: &str, columns: usize) -> String {
    let mut left = columns;
    let fits = |character: &char| {
        let width = character.width().unwrap_or(0);
        let has_room = width <= left;
        left = left.saturating_sub(width);
        has_room
    };
    text.trim_end().chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let row = |name: &str, cpu: Option<f64>, left: Option<u64>| Row {
            name: name.into(),
            state: "running".into(),
            cpu_percent: cpu,
            memory: Some(3 << 19),
            memory_limit: Some(1 << 30),
            left_seconds: left,
            ..Row::default()
        };
        let rows = vec![row("a", None, Some(61)), row("b", Some(12.34), None), row("c", Some(99.0), Some(5))];
        Snapshot { rows, total: 3, ..Snapshot::default() }
    }

    fn order(view: &View, snapshot: &Snapshot) -> String {
        view.sorted(&snapshot.rows).iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_any_column_both_ways() {
        let snapshot = snapshot();
        let mut view = View::sorted_by("CPU").unwrap();
        assert_eq!(order(&view, &snapshot), "cba");
        view.press(Key::Reverse, 3);
        assert_eq!(order(&view, &snapshot), "abc");
        assert_eq!(order(&View::sorted_by("left").unwrap(), &snapshot), "cab");
        assert_eq!(order(&View::sorted_by("sandbox").unwrap(), &snapshot), "abc");
        let mut view = View::sorted_by("left").unwrap();
        view.press(Key::NextColumn, 3);
        assert_eq!(view.column, Column::Name);
        assert!(View::sorted_by("colour").is_err());
    }

    #[test]
    fn a_screen_is_never_larger_than_its_window() {
        let snapshot = snapshot();
        let mut view = View::sorted_by("cpu").unwrap();
        for (lines, columns) in [(24, 120), (5, 40), (4, 10), (1, 1)] {
            let screen = view.screen(&snapshot, lines, columns);
            let plain: String = screen
                .replace("\u{1b}[H", "")
                .replace("\u{1b}[K", "")
                .replace("\u{1b}[7m", "")
                .replace("\u{1b}[0m", "");
            assert!(!plain.contains('\u{1b}'), "{plain:?}");
            assert!(plain.split("\r\n").all(|line| line.width() <= columns), "{columns}: {plain:?}");
            assert!(plain.split("\r\n").count() <= lines.max(4), "{lines}: {plain:?}");
        }
        let screen = view.screen(&snapshot, 24, 120);
        assert!(
            screen.contains("CPU%↓") && screen.contains("99.0") && screen.contains("1.5M/1G"),
            "{screen}"
        );
    }

    #[test]
    fn a_narrow_window_shows_fewer_columns_and_each_of_them_whole() {
        let snapshot = snapshot();
        let mut view = View::sorted_by("left").unwrap();
        let screen = view.screen(&snapshot, 24, 34);
        assert!(screen.contains("SANDBOX  CPU%  MEMORY   LEFT↓"), "{screen:?}");
        assert!(screen.contains("99.0") && screen.contains("1m01s"), "{screen:?}");
        view.press(Key::Column(Column::Io), 3);
        assert!(view.screen(&snapshot, 24, 200).contains("IO/S↓"));
    }

    #[test]
    fn scrolling_stops_at_both_ends() {
        let snapshot = snapshot();
        let mut view = View::sorted_by("sandbox").unwrap();
        view.press(Key::End, 3);
        let screen = view.screen(&snapshot, 4, 120);
        assert!(screen.contains("\r\nc ") && !screen.contains("\r\nb "), "{screen:?}");
        view.press(Key::Home, 3);
        view.press(Key::Up, 3);
        assert!(view.screen(&snapshot, 4, 120).contains("\r\na "));
    }
}
