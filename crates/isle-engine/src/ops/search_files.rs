//! `search_files`: lines of files that match.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_trees::{Glob, expression, searched};
use isle_wire::{Cut, SearchRequest};
use minicbor::bytes::ByteVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::agent::path_request;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::values::{GuestPath, SandboxName, Span};

/// What one answer to a model holds.
const PAGE: u64 = 24_000;
/// What one answer holds at all: it travels in one message.
const MOST_BYTES: u64 = 512 * 1024;
const TIME: Span = Span::seconds(10);
const LONGEST: Span = Span::seconds(60);

pub(super) struct SearchFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// Regular expression, compared line by line.
    pattern: String,
    /// The pattern is plain text.
    literal: Option<bool>,
    ignore_case: Option<bool>,
    /// Directory or file, default /workspace.
    path: Option<GuestPath>,
    /// Only these files, such as "*.py" or "src/**/*.rs".
    glob: Option<String>,
    /// Lines shown around each match, at most 10.
    context: Option<u32>,
    /// Matches at most, default 100.
    limit: Option<u32>,
    /// Time to search, default 10s.
    timeout: Option<Span>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    matches: Vec<Found>,
    files_searched: u64,
    /// Files that hold no text or may not be read.
    files_skipped: u64,
    /// There is more than this.
    truncated: bool,
    /// What ended the search early: matches, bytes or time.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Found {
    /// Relative to the directory that was searched.
    path: String,
    line: u64,
    column: u64,
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    before: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    /// The path's bytes when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl Operation for SearchFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "search_files";
    const TITLE: &'static str = "Search files";
    const DESCRIPTION: &'static str =
        "Find lines in files of a sandbox, as grep does. Binary files and .git are left out.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/search" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let refuse = |what: String, next: &str| Err(Error::new(Code::InvalidArgument, what).next(next));
        let (around, limit) = (input.context.unwrap_or(0), input.limit.unwrap_or(100));
        if around > 10 {
            return refuse("context is out of range".into(), "choose 0 to 10 lines");
        }
        if !(1..=1000).contains(&limit) {
            return refuse("limit is out of range".into(), "choose 1 to 1000 matches");
        }
        let timeout = input.timeout.unwrap_or(TIME);
        if timeout.0.is_zero() || timeout > LONGEST {
            return refuse(format!("a search of {timeout} is out of range"), "choose up to 60s");
        }
        if input.pattern.is_empty() {
            return refuse("pattern is empty".into(), "say what to look for");
        }
        let pattern =
            searched(&input.pattern, input.literal.unwrap_or(false), input.ignore_case.unwrap_or(false));
        if let Err(why) = expression(&pattern) {
            return refuse(
                format!("the pattern cannot be used: {why}"),
                "correct the regular expression, or set literal for plain text",
            );
        }
        check_glob(input.glob.as_deref())?;
        let path = input.path.unwrap_or_else(GuestPath::workspace);
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let request = SearchRequest {
            at: path_request(&path, user),
            pattern,
            glob: input.glob,
            context: around,
            limit,
            budget: if context.door == Door::Mcp { PAGE } else { MOST_BYTES },
            time_ms: u64::try_from(timeout.0.as_millis()).unwrap_or(u64::MAX),
        };
        let found = sandbox.agent()?.search(&path, request).await?;
        let masker = sandbox.masker();
        let text = |bytes: &ByteVec| {
            let masked = masker.as_ref().map_or(Cow::Borrowed(&bytes[..]), |masker| masker.mask(bytes));
            String::from_utf8_lossy(&masked).into_owned()
        };
        let matches = found
            .matches
            .iter()
            .map(|one| Found {
                path: if one.path.is_empty() { path.to_string() } else { text(&one.path) },
                line: one.line,
                column: one.column,
                text: text(&one.text),
                before: one.before.iter().map(text).collect(),
                after: one.after.iter().map(text).collect(),
                path_base64: std::str::from_utf8(&one.path).err().map(|_| STANDARD.encode(&one.path[..])),
            })
            .collect();
        let stopped_by = found.cut.map(|cut| match cut {
            Cut::Matches => "matches",
            Cut::Bytes => "bytes",
            Cut::Time => "time",
        });
        Ok(Output {
            matches,
            files_searched: found.files,
            files_skipped: found.skipped,
            truncated: stopped_by.is_some(),
            stopped_by,
        })
    }
}

/// Refuses a glob that cannot be read.
pub(super) fn check_glob(glob: Option<&str>) -> Result<()> {
    match glob.map(Glob::new) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(why)) => Err(Error::new(Code::InvalidArgument, format!("glob: {why}"))
            .next("write it like \"*.py\" or \"src/**/*.rs\"")),
    }
}
