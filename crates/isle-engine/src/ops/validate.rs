//! `validate`: a look at code before it runs. Advice, never a wall.

use super::Handler;
use super::run_code::source;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::{CodeSource, language_of};
use crate::validate::{FINDINGS, LARGEST};
use futures::TryStreamExt;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::validate::{FindingShape, FixShape, Input, Output, ProblemShape, Validate, Verdict};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};
use isle_wire::GuestUser;

impl Handler for Validate {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let sandbox = sandbox_or_default(input.sandbox);
        let ignored = input.ignore.unwrap_or_default();
        check_names(&ignored)?;
        let source = source(input.code, input.path)?;
        let code = match &source {
            CodeSource::Text(code) => code.clone(),
            CodeSource::File(path) => {
                let place = inner.sandboxes.looked_at(&context, &sandbox).await?;
                read(
                    path,
                    place.agent()?.read_file(path, GuestUser::Sandbox, 0, Some(LARGEST as u64 + 1)).await?,
                )
                .await?
            }
        };
        if code.len() > LARGEST {
            return Err(too_large());
        }
        let language = match (&input.language, &source) {
            // A file without a telling name is known by what is in it.
            (None, CodeSource::File(_)) => {
                language_of(None, &source).or_else(|_| language_of(None, &CodeSource::Text(code.clone())))?
            }
            (named, _) => language_of(named.as_deref(), &source)?,
        };
        let fix = input.fix.unwrap_or(true);
        let mut found = inner.code_checker.check(&context, &sandbox, language, &code, fix).await?;
        found.findings.retain(|finding| !ignored.contains(&finding.name));
        let forbidden = input.reject_findings.unwrap_or(false) && !found.findings.is_empty();
        let verdict = match (&found.fixed, forbidden || !found.errors.is_empty()) {
            (_, true) => Verdict::Reject,
            (Some(_), false) => Verdict::Fixed,
            (None, false) => Verdict::Pass,
        };
        let fixed = found.fixed.filter(|_| verdict == Verdict::Fixed);
        if fixed.is_none() {
            found.fixes.clear();
        }
        Ok(Output {
            sandbox,
            language: language.as_str(),
            verdict,
            errors: found
                .errors
                .into_iter()
                .map(|one| ProblemShape { line: one.line, column: one.column, message: one.message })
                .collect(),
            findings: found
                .findings
                .into_iter()
                .map(|one| FindingShape {
                    name: one.name,
                    line: one.line,
                    column: one.column,
                    message: one.message,
                })
                .collect(),
            fixes: found
                .fixes
                .into_iter()
                .map(|one| FixShape { name: one.name, line: one.line, message: one.message })
                .collect(),
            original: fixed.is_some().then_some(code),
            code: fixed,
            domains: found.hosts,
            notes: found.notes,
        })
    }
}

fn check_names(names: &[String]) -> Result<()> {
    let known = || FINDINGS.iter().map(|(name, _)| *name);
    match names.iter().find(|name| !known().any(|one| one == name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::new(Code::InvalidArgument, format!("there is no finding {name:?}"))
            .detail("findings", known().collect::<Vec<_>>())
            .next("ignore names from the list in `details`")),
    }
}

async fn read(path: &GuestPath, (_, bytes): (isle_wire::Stat, crate::engine::ByteStream)) -> Result<String> {
    let bytes: Vec<u8> = bytes
        .try_fold(Vec::new(), |mut all, part| async move {
            all.extend_from_slice(&part);
            Ok(all)
        })
        .await?;
    if bytes.len() > LARGEST {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::new(Code::InvalidArgument, format!("{path} is not text in UTF-8"))
            .next("convert it to UTF-8 first")
    })
}

fn too_large() -> Error {
    Error::new(Code::TooLarge, format!("there are more than {} KiB of code", LARGEST / 1024))
        .next("check it in parts")
}
