//! What was carried between a sandbox and the outside, as `copy_in`, `copy_out` and the archive routes answer it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// What was carried.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct CarriedShape {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What was left out, the first of them.
    pub skipped: Vec<SkippedShape>,
    /// How many were left out in all.
    pub skipped_count: u64,
    /// Files that programs of the host run or obey by themselves, and files that have become executable:
    /// worth a look, the first of each kind, the most dangerous first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review: Vec<ReviewShape>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub review_count: u64,
    /// Kinds of which there are more than are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review_more: Vec<ReviewMoreShape>,
}

/// Something that was left out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SkippedShape {
    /// Where, relative to the top.
    pub path: String,
    /// Why.
    pub why: String,
    /// The same for programs: `git_directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// A file that is worth a look.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ReviewShape {
    /// Where, relative to the top.
    pub path: String,
    /// Who runs or obeys it, and when.
    pub why: String,
}

/// Files worth a look that are not named.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ReviewMoreShape {
    /// Who runs or obeys them, and when.
    pub why: String,
    /// How many.
    pub count: u64,
}

impl CarriedShape {
    /// What the audit keeps of it.
    #[must_use]
    pub fn audited(&self, more: Value) -> Value {
        let mut detail = json!({
            "files": self.files,
            "directories": self.directories,
            "bytes": self.bytes,
            "skipped": self.skipped_count,
        });
        if let (Value::Object(detail), Value::Object(more)) = (&mut detail, more) {
            detail.extend(more);
        }
        detail
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}
