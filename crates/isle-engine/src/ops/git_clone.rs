//! `git_clone`: a repository into a sandbox, by the sandbox's own git. A token goes to git through a
//! pipe that only its credential helper reads: it is in no file, no argument, no variable, no record
//! and no answer.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::network::{AskedGrants, NetworkWish};
use crate::run::{AnswerOptions, Plan, Program, RunKind, named_target, text_input};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::git_clone::{Commit, GitClone, Input, Output};
use isle_api::shapes::{RunResult, RunState};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};
use isle_wire::FileKind;

/// Clones, then says what was cloned. The first descriptor becomes the third, so that git itself has
/// nothing to read and its helper reads the pipe; `$6` is the host the helper is asked for, no other.
const SCRIPT: &str = r#"exec 3<&0 </dev/null
url=$1 target=$2 branch=$3 depth=$4 place=$5
set -- --quiet
if [ -n "$branch" ]; then set -- "$@" "--branch=$branch"; fi
if [ "$depth" != 0 ]; then set -- "$@" "--depth=$depth"; fi
if [ -n "$place" ]; then
  git -c credential.helper= -c "credential.$place.helper=!f() { test \"\$1\" = get && cat <&3; }; f" clone "$@" -- "$url" "$target" || exit
else
  git -c credential.helper= clone "$@" -- "$url" "$target" || exit
fi
exec 3<&-
cd -- "$target" || exit
commit=$(git log -1 --format=%H%n%aI%n%an%n%s 2>/dev/null) || commit=
branch=$(git symbolic-ref --quiet --short HEAD || true)
files=$(git ls-files -z | tr -dc '\0' | wc -c)
printf '%s\n%s\n%s\n' "$files" "$branch" "$commit"
"#;

impl Handler for GitClone {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let url = Address::parse(&input.url)?;
        check_word("branch", input.branch.as_deref())?;
        check_word("username", input.username.as_deref())?;
        let credential = credential(&url, input.token.as_deref(), input.username.as_deref())?;
        let asked = AskedGrants::read(&context, &input.allow, Some(&input.url))?;
        let path = match input.path {
            Some(path) => path,
            None => url.name()?.parse()?,
        };
        let name = sandbox_or_default(input.sandbox);
        let sandbox = inner.sandboxes.ensure(&context, &name).await?;
        let user = input.user.unwrap_or_default();
        let is_new = match sandbox.agent()?.stat(&path, user.into()).await {
            Err(error) if error.code == Code::FileNotFound => true,
            Err(error) => return Err(error),
            Ok(stat) if stat.kind == FileKind::Directory => {
                let inside = sandbox.agent()?.list(&path, user.into(), 1, 1, None).await?;
                if !inside.entries.is_empty() {
                    return Err(exists(&path, "a directory that is not empty"));
                }
                false
            }
            Ok(_) => return Err(exists(&path, "a file")),
        };
        let place = credential.as_ref().map(|_| url.place()).unwrap_or_default();
        let depth = input.depth.unwrap_or(1).to_string();
        let branch = input.branch.unwrap_or_default();
        let words = ["sh", "-c", SCRIPT, "git-clone", &input.url, &path.absolute(), &branch, &depth, &place];
        let environment = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "/bin/false"),
            ("SSH_ASKPASS", "/bin/false"),
            ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
            ("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh"),
            // Whatever code in the sandbox wrote there must not decide where a token goes.
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("LC_ALL", "C"),
        ];
        let place = named_target(Some(name));
        let program = Program::Argv(words.map(str::to_owned).to_vec());
        let plan = Plan {
            env: environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            input: text_input(credential),
            user: user.into(),
            timeout: inner.runs.timeout(input.timeout),
            network: NetworkWish::asked(asked),
            ..Plan::new(RunKind::Exec, place, program)
        };
        let options = AnswerOptions { wait: Some(inner.config.max_timeout), ..AnswerOptions::default() };
        let run = inner.runs.answer(&context, plan, options).await?;
        if run.state == RunState::Completed {
            return read(&run, &path);
        }
        if is_new && run.state.is_final() {
            // Git removes what it began, unless it was killed.
            sandbox.agent()?.remove(&path, user.into(), true).await.ok();
        }
        Err(failed(&run, input.token.as_deref()))
    }
}

fn exists(path: &GuestPath, what: &str) -> Error {
    Error::new(Code::FileExists, format!("{path} is {what}")).next("choose another path, or remove it first")
}

fn refuse(what: impl Into<String>, next: &str) -> Error {
    Error::new(Code::InvalidArgument, what).next(next)
}

/// A word that goes to git as a value of its own: no option, no second line.
fn check_word(name: &str, word: Option<&str>) -> Result<()> {
    match word {
        Some(word) if word.is_empty() || word.starts_with('-') || word.chars().any(char::is_control) => {
            Err(refuse(format!("{name} is {word:?}"), "give a plain name, without a leading `-`"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Where a repository is.
struct Address<'a> {
    scheme: &'a str,
    authority: &'a str,
    rest: &'a str,
}

impl<'a> Address<'a> {
    fn parse(url: &'a str) -> Result<Self> {
        const NEXT: &str = "write it like https://host/owner/name.git; a token goes into `token`";
        if url.is_empty() || url.len() > 4096 || url.starts_with('-') || url.chars().any(char::is_control) {
            return Err(refuse("url is not the address of a repository", NEXT));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            // A path of the sandbox, or the short form of ssh; `name::…` would name a program to run.
            if url.contains("::") {
                return Err(refuse("url names a transport that is not allowed", NEXT));
            }
            return Ok(Self { scheme: "", authority: "", rest: url });
        };
        if !matches!(scheme, "https" | "http" | "ssh" | "git" | "file") {
            return Err(refuse(
                format!("url has the scheme {scheme:?}"),
                "use https, http, ssh, git or file",
            ));
        }
        let (authority, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| user.contains(':') || matches!(scheme, "https" | "http")) {
            return Err(refuse("url carries a user or password, which would stay in the sandbox", NEXT));
        }
        Ok(Self { scheme, authority, rest })
    }

    /// The name of the repository, for a directory.
    fn name(&self) -> Result<&'a str> {
        let last = self.rest.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        let name = last.strip_suffix(".git").unwrap_or(last);
        if name.is_empty() || name.starts_with('.') {
            return Err(refuse("url has no name for a directory", "say with path where to clone it"));
        }
        Ok(name)
    }

    /// What a credential is good for.
    fn place(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    fn is_this_machine(&self) -> bool {
        let host = match self.authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.authority.split(':').next().unwrap_or_default(),
        };
        matches!(host, "localhost" | "127.0.0.1" | "::1")
    }
}

/// What the helper tells git.
fn credential(url: &Address<'_>, token: Option<&str>, username: Option<&str>) -> Result<Option<String>> {
    let Some(token) = token else {
        return match username {
            Some(_) => Err(refuse("username is given without token", "give both, or neither")),
            None => Ok(None),
        };
    };
    if token.is_empty() || token.chars().any(char::is_control) {
        return Err(refuse("token is empty or holds a control character", "give the token itself"));
    }
    // Over plain http anybody on the way could read it.
    if url.scheme != "https" && !(url.scheme == "http" && url.is_this_machine()) {
        return Err(refuse("a token is only sent over https", "use an https URL"));
    }
    Ok(Some(format!("username={}\npassword={token}\n", username.unwrap_or("git"))))
}

fn read(run: &RunResult, path: &GuestPath) -> Result<Output> {
    let mut lines = run.stdout.lines();
    let files = lines.next().and_then(|count| count.trim().parse().ok());
    let files = files.ok_or_else(|| Error::internal("git did not say what it cloned"))?;
    let branch = lines.next().map(str::to_owned).filter(|branch| !branch.is_empty());
    let mut next = || lines.next().map(str::to_owned).unwrap_or_default();
    let commit = Commit { id: next(), date: next(), author: next(), subject: next() };
    let commit = Some(commit).filter(|commit| !commit.id.is_empty());
    Ok(Output { path: path.absolute(), files, branch, commit, run_id: run.run_id.clone() })
}

fn failed(run: &RunResult, token: Option<&str>) -> Error {
    let words: String =
        run.stderr.trim().chars().rev().take(2000).collect::<String>().chars().rev().collect();
    let words = match token {
        Some(token) => words.replace(token, "***"),
        None => words,
    };
    let error = match run.state {
        RunState::TimedOut => Error::new(Code::CloneFailed, "the time for cloning was up")
            .next("set a longer timeout, or a smaller depth"),
        _ if words.contains("Authentication failed") || words.contains("could not read Username") => {
            Error::new(Code::CloneFailed, "the server asks for a token, or does not take this one")
                .next("give a token that may read the repository")
        }
        _ if words.contains("Could not resolve host") || words.contains("unable to access") => {
            Error::new(Code::CloneFailed, "the server cannot be reached from the sandbox")
                .next("`isle file clone --allow git` lets git reach the host of the URL; or clone on the host and use copy_in or `isle sync push`")
        }
        _ => Error::new(Code::CloneFailed, "git did not clone the repository")
            .next("`details` holds what git said"),
    };
    error.detail("git", words).detail("run_id", run.run_id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_passwords_options_and_programs_are_refused() {
        for bad in [
            "",
            "-upload-pack=x",
            "https://user:secret@host/x",
            "https://token@host/x",
            "ssh://git:pw@host/x",
            "ext::sh -c x",
            "ftp://host/x",
            "https://host/x\ny",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        for (good, name) in [
            ("https://host/owner/name.git", "name"),
            ("ssh://git@host/owner/name", "name"),
            ("git@host:owner/name.git", "name"),
            ("/workspace/repository.git/", "repository"),
            ("file:///workspace/x", "x"),
        ] {
            assert_eq!(Address::parse(good).unwrap().name().unwrap(), name, "{good}");
        }
    }

    #[test]
    fn a_token_goes_over_https_or_stays_on_the_machine() {
        let given = |url: &str| credential(&Address::parse(url).unwrap(), Some("secret"), None);
        assert_eq!(given("https://host/x").unwrap().unwrap(), "username=git\npassword=secret\n");
        assert!(given("http://127.0.0.1:80/x").is_ok() && given("http://[::1]:8/x").is_ok());
        assert!(given("http://host/x").is_err() && given("git://host/x").is_err() && given("/x").is_err());
        let url = Address::parse("https://host/x").unwrap();
        assert!(credential(&url, Some("two\nlines"), None).is_err());
        assert!(credential(&url, None, Some("me")).is_err());
    }
}
