//! `search_files`: lines of files that match.

use super::Handler;
use crate::agent::path_request;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::search_files::{Found, Input, Output, SearchFiles};
use isle_core::values::{GuestPath, Span};
use isle_core::{Code, Error, Result};
use isle_trees::{Glob, compile_regex, regex_pattern};
use isle_wire::{Cut, SearchRequest};
use minicbor::bytes::ByteVec;
use std::borrow::Cow;

/// What one answer to a model holds.
const PAGE: u64 = 24_000;

/// What one answer holds at all: it travels in one message.
const MOST_BYTES: u64 = 512 * 1024;

const TIME: Span = Span::seconds(10);

const LONGEST: Span = Span::seconds(60);

impl Handler for SearchFiles {
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
            regex_pattern(&input.pattern, input.literal.unwrap_or(false), input.ignore_case.unwrap_or(false));
        if let Err(why) = compile_regex(&pattern) {
            return refuse(
                format!("the pattern cannot be used: {why}"),
                "correct the regular expression, or set literal for plain text",
            );
        }
        check_glob(input.glob.as_deref())?;
        let path = input.path.unwrap_or_else(GuestPath::workspace);
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
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
