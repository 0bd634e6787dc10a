//! Plain tables: a heading and aligned columns, separated by two spaces. Cells are escaped here, so that no
//! caller can forget it.

use unicode_width::UnicodeWidthStr;

use super::escape::escaped;
use super::paint::{Colour, Paint};

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row with as many cells as the heading has.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escaped(&cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, with a newline after every row.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut widths: Vec<usize> = self.heading.iter().map(|cell| cell.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let line = |cells: &[String]| {
            let mut text = String::new();
            for (index, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                text.push_str(cell);
                if index + 1 < cells.len() {
                    text.push_str(&" ".repeat(width - cell.width() + 2));
                }
            }
            text.trim_end().to_owned()
        };
        let mut text = paint.plain(Colour::Grey, &line(&self.heading));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        text
    }
}
