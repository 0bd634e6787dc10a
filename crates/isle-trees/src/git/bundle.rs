//! A repository of a sandbox as a git bundle: git inside the sandbox packs commits and refs; a bundle
//! contains nothing else of a git directory. Its header is untrusted and checked here.

use std::io::{BufRead, BufReader, Read};

/// Packs the repository in the directory `$1` into the file `$2` there. It runs in the sandbox as the
/// sandbox's user: what the repository's settings make git do happens inside.
pub const BUNDLE_SCRIPT: &str = r#"cd -- "$1" || exit
command -v git >/dev/null 2>&1 || { printf 'nogit\n'; exit 0; }
run() { git -c safe.directory='*' -c core.fsmonitor=false -c core.hooksPath=/dev/null --git-dir=.git "$@"; }
branch=$(run symbolic-ref -q HEAD) || branch=
commit=$(run rev-parse -q --verify 'HEAD^{commit}') || commit=
some=$(run for-each-ref --count=1 --format=x refs/heads refs/tags)
if [ -z "$commit$some" ]; then printf 'empty\n%s\n' "$branch"; exit 0; fi
run bundle create -q "$2" ${commit:+HEAD} --branches --tags >&2 || exit
printf 'bundled\n%s\n' "$branch"
"#;

/// Bytes of the list of refs.
const LONGEST_HEADER: u64 = 8 << 20;
/// Refs in it.
const MOST_REFS: usize = 20_000;
/// Bytes of a name.
const LONGEST_NAME: usize = 200;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The sandbox has no git.
    #[error("git is not installed in the sandbox; it is needed to pack the commits")]
    NoGitInside,
    /// The host has no git.
    #[error("git is not installed on this host: {0}")]
    NoGitHere(String),
    /// Git inside the sandbox failed.
    #[error("git in the sandbox could not pack the repository: {0}")]
    Packing(String),
    /// Git inside the sandbox timed out; its process tree was killed.
    #[error("git in the sandbox timed out packing the repository and was killed")]
    PackingTooLong,
    /// Not a valid bundle.
    #[error("the bundle from the sandbox was rejected: {0}")]
    Bundle(&'static str),
    /// Git on the host failed.
    #[error("git on the host failed: {0}")]
    Failed(String),
    /// Git on the host timed out.
    #[error("git on the host timed out after {0}s and was killed")]
    TimedOut(u64),
    /// `.git` on the host is a symbolic link or another unsupported type.
    #[error(".git on the host is {0}")]
    Standing(&'static str),
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The result of the script in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundled {
    /// The checked out branch, if its name is accepted.
    pub branch: Option<String>,
    /// There are no commits, and no file.
    pub is_empty: bool,
}

impl Bundled {
    /// Parses the output of the script.
    pub fn read(stdout: &str) -> Result<Self, GitError> {
        let mut lines = stdout.lines();
        let is_empty = match lines.next() {
            Some("bundled") => false,
            Some("empty") => true,
            Some("nogit") => return Err(GitError::NoGitInside),
            _ => return Err(GitError::Packing("no answer".into())),
        };
        let branch = lines.next().and_then(|name| name.strip_prefix("refs/heads/"));
        Ok(Self { branch: branch.filter(|name| is_plain_ref(name)).map(str::to_owned), is_empty })
    }
}

/// A ref of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BundledRef {
    pub(super) id: String,
    /// `HEAD`, `heads/…` or `tags/…`.
    pub(super) name: String,
}

/// The list of refs at the beginning of a bundle.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) refs: Vec<BundledRef>,
    /// The first rejected names.
    pub(super) refused: Vec<String>,
    pub(super) sha256: bool,
}

/// Reads the list. Names with a special meaning for a shell, as an option or on another file system are
/// rejected individually; a bundle of another format as a whole.
pub(super) fn read_header(file: std::fs::File) -> Result<Header, GitError> {
    parse(BufReader::new(file.take(LONGEST_HEADER)))
}

fn parse(mut reader: impl BufRead) -> Result<Header, GitError> {
    let mut line = Vec::new();
    let mut next = || -> Result<String, GitError> {
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        let text = line.strip_suffix(b"\n").ok_or(GitError::Bundle("its list of refs is truncated"))?;
        String::from_utf8(text.to_vec()).map_err(|_| GitError::Bundle("a ref name is not UTF-8"))
    };
    let mut header = Header::default();
    match next()?.as_str() {
        "# v2 git bundle" | "# v3 git bundle" => {}
        _ => return Err(GitError::Bundle("it is not a git bundle")),
    }
    loop {
        let line = next()?;
        if line.is_empty() {
            return Ok(header);
        }
        if let Some(capability) = line.strip_prefix('@') {
            match capability {
                "object-format=sha1" => {}
                "object-format=sha256" => header.sha256 = true,
                _ => return Err(GitError::Bundle("the bundle is not complete")),
            }
            continue;
        }
        if line.starts_with('-') {
            return Err(GitError::Bundle("the bundle is not complete"));
        }
        let (id, name) = line.split_once(' ').ok_or(GitError::Bundle("a ref has no name"))?;
        let digits = if header.sha256 { 64 } else { 40 };
        if id.len() != digits || !id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(GitError::Bundle("a ref has no object id"));
        }
        if header.refs.len() >= MOST_REFS {
            return Err(GitError::Bundle("it has more than 20000 refs"));
        }
        let short = name.strip_prefix("refs/").unwrap_or(name);
        let is_taken = name == "HEAD"
            || short.split_once('/').is_some_and(|(kind, rest)| {
                name.starts_with("refs/") && matches!(kind, "heads" | "tags") && is_plain_ref(rest)
            });
        if is_taken {
            header.refs.push(BundledRef { id: id.to_owned(), name: short.to_owned() });
        } else if header.refused.len() < 20 {
            header.refused.push(name.chars().take(LONGEST_NAME).collect());
        }
    }
}

/// A name of a branch or tag that every shell, prompt, file system and program takes for just that.
pub(super) fn is_plain_ref(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_./+@#=,%-".contains(&byte);
    let is_part = |part: &str| {
        let lower = part.to_ascii_lowercase();
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !lower.ends_with(".lock")
    };
    let is_id = name.len() >= 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.len() <= LONGEST_NAME
        && name.bytes().all(is_letter)
        && !name.contains("..")
        && !name.contains("@{")
        && name != "@"
        && !name.eq_ignore_ascii_case("head")
        && !is_id
        && name.split('/').all(is_part)
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
