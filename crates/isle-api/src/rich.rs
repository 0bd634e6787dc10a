//! What code gives back, in every form it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use isle_core::values::ContextName;

/// What became of a context during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ContextState {
    /// This call made it.
    New,
    /// It was there before and lives on.
    Kept,
    /// Its interpreter is gone; the next call makes it anew.
    Ended,
}

/// The context a call ran in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ContextUse {
    /// Its name; not known of a run that an earlier daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ContextName>,
    /// What became of it.
    pub state: ContextState,
}

/// Where a result comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum RichKind {
    /// The value of the last expression.
    Value,
    /// Shown by `display`.
    Display,
    /// Drawn and left open.
    Figure,
}

/// One result in every form it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RichResult {
    /// Where it comes from.
    pub kind: RichKind,
    /// As text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// As Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    /// As LaTeX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latex: Option<String>,
    /// As an SVG picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub svg: Option<String>,
    /// As a PNG picture, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub png: Option<String>,
    /// As a JPEG picture, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<String>,
    /// As JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// As rows and columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableData>,
    /// Forms that were left out: too large, or they failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
}

/// The first rows of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TableData {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Rows in all.
    pub total_rows: u64,
    /// Columns in all.
    pub total_columns: u64,
}

/// An exception.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CodeError {
    /// Its class.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Where it came from, the innermost frame where the language has it: last in Python, first in Node.
    #[serde(default)]
    pub traceback: Vec<TracebackFrame>,
    /// As the language prints it.
    #[serde(default, skip_serializing)]
    pub text: String,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TracebackFrame {
    /// The file, or the name of the piece of code.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function.
    #[serde(default)]
    pub function: String,
    /// The line's text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl RichResult {
    /// A copy whose texts take at most what is left of a budget, which shrinks by as much. What does
    /// not fit whole and cannot be cut is left out and named.
    #[must_use]
    pub fn within(&self, left: &mut usize) -> Self {
        let mut omitted = self.omitted.clone();
        let text = self.text.as_ref().map(|text| cut(text, left));
        let mut fits = |name: &str, size: usize| {
            let good = size <= *left;
            if good {
                *left -= size;
            } else {
                omitted.push(name.to_owned());
            }
            good
        };
        let mut whole =
            |name: &str, form: &Option<String>| form.clone().filter(|form| fits(name, form.len()));
        let markdown = whole("markdown", &self.markdown);
        let latex = whole("latex", &self.latex);
        let html = whole("html", &self.html);
        let svg = whole("svg", &self.svg);
        let size =
            |value: &dyn Fn() -> serde_json::Result<String>| value().map_or(usize::MAX, |text| text.len());
        let table = self.table.clone().filter(|table| fits("table", size(&|| serde_json::to_string(table))));
        let json = self.json.clone().filter(|json| fits("json", size(&|| serde_json::to_string(json))));
        Self {
            kind: self.kind,
            text,
            html,
            markdown,
            latex,
            svg,
            png: self.png.clone(),
            jpeg: self.jpeg.clone(),
            json,
            table,
            omitted,
        }
    }
}

/// A text cut on the border of a character, with a word about it.
fn cut(text: &str, left: &mut usize) -> String {
    if text.len() <= *left {
        *left -= text.len();
        return text.to_owned();
    }
    let mut end = *left;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    *left = 0;
    format!("{}… [{} of {} bytes]", &text[..end], end, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_or_left_out_by_name_and_pictures_stay() {
        let result: RichResult = serde_json::from_value(serde_json::json!({
            "kind": "value", "text": "äöü", "html": "<b>bold</b>", "json": [1, 2], "png": "x".repeat(100),
        }))
        .unwrap();
        let mut enough = 1000;
        assert_eq!(result.within(&mut enough), result);
        let mut little = 3;
        let short = result.within(&mut little);
        assert_eq!(short.text.as_deref(), Some("ä… [2 of 6 bytes]"));
        assert_eq!((short.html, short.json), (None, None));
        assert_eq!(short.omitted, ["html", "json"]);
        assert_eq!(short.png, result.png);
    }
}
