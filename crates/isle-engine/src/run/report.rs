//! What code gave back beside its output: values in all their forms, pictures, the exception. An
//! interpreter inside the sandbox says it, so nothing of it is believed: it is bounded, read into
//! types, and a picture is one only when it looks like one.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_wire::ContextFate;
use serde::Deserialize;

use super::{Finish, Run};
use isle_api::shapes::{CodeError, ContextState, ContextUse, RichResult, RunState};

/// Bytes of a report that are kept; an interpreter keeps to less by itself.
const LARGEST: usize = 12 * 1024 * 1024;

/// What code gave back.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodeOutcome {
    pub(crate) context: Option<ContextUse>,
    pub(crate) results: Vec<RichResult>,
    pub(crate) error: Option<CodeError>,
    /// Its size in memory.
    pub(crate) bytes: usize,
}

#[derive(Debug, Default, Deserialize)]
struct Reported {
    #[serde(default)]
    results: Vec<RichResult>,
    #[serde(default)]
    error: Option<CodeError>,
}

impl Run {
    /// A piece of a report arrived.
    pub(super) fn note_report(&self, bytes: &[u8]) {
        let mut live = crate::lock(&self.live);
        if live.report.len() + bytes.len() <= LARGEST {
            live.report.extend_from_slice(bytes);
        }
    }
}

/// Adds to the end of a run what its interpreter reported, and what became of its context.
pub(super) fn complete(run: &Run, finish: &mut Finish, fate: Option<ContextFate>) {
    let report = std::mem::take(&mut crate::lock(&run.live).report);
    if report.is_empty() && fate.is_none() {
        return;
    }
    let mut reported: Reported = match run.sandbox.masker() {
        None => serde_json::from_slice(&report).unwrap_or_default(),
        Some(masker) => {
            let mut value: serde_json::Value = serde_json::from_slice(&report).unwrap_or_default();
            masker.mask_json(&mut value);
            serde_json::from_value(value).unwrap_or_default()
        }
    };
    for result in &mut reported.results {
        check_picture(&mut result.png, b"\x89PNG\r\n\x1a\n");
        check_picture(&mut result.jpeg, b"\xff\xd8");
    }
    let context_state = fate.map(|fate| match fate {
        ContextFate::New => ContextState::New,
        ContextFate::Kept => ContextState::Kept,
        ContextFate::Ended => ContextState::Ended,
    });
    if let Some(state) = context_state {
        finish.note = note(run, finish, state);
    }
    finish.code = Some(Arc::new(CodeOutcome {
        context: context_state.map(|state| ContextUse { name: run.context.get().cloned(), state }),
        results: reported.results,
        error: reported.error,
        bytes: report.len(),
    }));
}

/// Drops what does not begin as a picture does.
fn check_picture(picture: &mut Option<String>, beginning: &[u8]) {
    let good = picture
        .as_ref()
        .is_none_or(|text| STANDARD.decode(text.trim()).is_ok_and(|bytes| bytes.starts_with(beginning)));
    if !good {
        *picture = None;
    }
}

/// What to say about the end of a call in a context.
fn note(run: &Run, finish: &Finish, context: ContextState) -> Option<String> {
    const GONE: &str = "the context's interpreter is gone: the next call in it starts anew, files stay";
    let survived = context != ContextState::Ended;
    let own = match finish.state {
        RunState::TimedOut if survived => run.timeout.map(|timeout| {
            format!("its time of {timeout} was up and it was interrupted; the context lives on; raise `timeout`, or split the work")
        }),
        RunState::Cancelled if survived => Some("the caller cancelled it; the context lives on".into()),
        RunState::Killed if survived => Some("it was interrupted; the context lives on".into()),
        RunState::Failed if survived && finish.exit_code == Some(130) => {
            Some("it was interrupted; the context lives on".into())
        }
        _ => finish.note.clone(),
    };
    if survived {
        return own;
    }
    Some(own.map_or_else(|| GONE.to_owned(), |own| format!("{own}; {GONE}")))
}

impl CodeOutcome {
    /// The results with texts of at most `budget` bytes in all. Pictures are not counted: they do not
    /// reach a model as text.
    pub(crate) fn results_within(&self, budget: usize) -> Vec<RichResult> {
        let mut left = budget;
        self.results.iter().map(|result| result.within(&mut left)).collect()
    }
}
