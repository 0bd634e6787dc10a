//! `isle cp`: copies files and directories between this host and a sandbox. File names from a sandbox are not
//! trusted: names that leave the target directory are rejected, links are not followed.

mod download;
mod upload;

use std::path::PathBuf;
use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error};
use isle_trees::git::GitDirs;
use serde_json::json;

use super::Context;
use super::transfer_report::TransferReport;
use crate::arguments::CpArguments;
use crate::output::{Form, escaped, human_bytes, print_json, print_stderr};

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Host(PathBuf),
    Guest { sandbox: SandboxName, path: String },
}

/// What was copied.
#[derive(Debug)]
struct Copied {
    form: Form,
    files: u64,
    bytes: u64,
    /// Skipped files.
    skipped: Vec<Skipped>,
    /// Number of skipped files that are not listed.
    unnamed: u64,
    /// How git directories are handled.
    git_dirs: GitDirs,
    transfer: TransferReport,
}

/// A skipped file.
#[derive(Debug)]
struct Skipped {
    path: String,
    why: String,
}

impl Copied {
    fn skip_because(&mut self, path: String, why: impl Into<String>) {
        self.skipped.push(Skipped { path, why: why.into() });
    }
}

pub(super) async fn cp(context: &Context, arguments: CpArguments) -> Result<ExitCode> {
    let (from, to) = (side(&arguments.from)?, side(&arguments.to)?);
    let mut copied = Copied {
        form: context.form,
        files: 0,
        bytes: 0,
        skipped: Vec::new(),
        unnamed: 0,
        git_dirs: arguments.git_dirs.into(),
        transfer: TransferReport::default(),
    };
    match (from, to) {
        (Side::Host(host), Side::Guest { sandbox, path }) => {
            upload::upload(&context.client().await?, &host, sandbox.as_str(), &path, &mut copied).await?;
        }
        (Side::Guest { sandbox, path }, Side::Host(host)) => {
            let client = context.client().await?;
            download::download(&client, sandbox.as_str(), &path, &host, &mut copied).await?;
            if host.as_os_str() == "-" {
                return Ok(ExitCode::SUCCESS);
            }
        }
        (Side::Host(_), Side::Host(_)) => {
            return Err(invalid_sides("source and destination are both on this host"));
        }
        (Side::Guest { .. }, Side::Guest { .. }) => {
            return Err(invalid_sides("source and destination are both in a sandbox"));
        }
    }
    match context.form {
        Form::Json => {
            let skipped: Vec<&str> = copied.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
            let count = skipped.len() as u64 + copied.unnamed;
            let mut answer = json!({
                "files": copied.files, "bytes": copied.bytes, "skipped": skipped, "skipped_count": count,
            });
            copied.transfer.add_to_json(&mut answer);
            print_json(&answer);
        }
        Form::Human => {
            for Skipped { path, why } in &copied.skipped {
                print_stderr(&format!("skipped {}: {}", escaped(path), escaped(why)));
            }
            if copied.unnamed > 0 {
                print_stderr(&format!("skipped {} more", copied.unnamed));
            }
            copied.transfer.print();
            let word = if copied.files == 1 { "file" } else { "files" };
            print_stderr(&format!("copied {} {word}, {}", copied.files, human_bytes(copied.bytes)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn invalid_sides(why: &str) -> isle_client::ClientError {
    Error::new(Code::InvalidArgument, why)
        .next("use NAME:PATH for one of them, such as `isle cp data.csv default:data.csv`")
        .next("prefix a host path that contains a colon with ./")
        .into()
}

/// `NAME:PATH` is in a sandbox, `PARENT/NAME:PATH` in a child. A path of this host that contains a colon
/// starts with `/` or `.`.
fn side(text: &str) -> Result<Side> {
    let guest = text.split_once(':').filter(|(name, _)| !name.is_empty() && !name.starts_with(['.', '/']));
    match guest {
        None => Ok(Side::Host(text.into())),
        Some((name, path)) => {
            let path = if path.is_empty() { "." } else { path };
            let path: GuestPath = path.parse()?;
            Ok(Side::Guest { sandbox: name.parse()?, path: path.as_str().to_owned() })
        }
    }
}

/// Type of a path in the sandbox.
#[derive(Debug, PartialEq, Eq)]
enum PathKind {
    Missing,
    Directory,
    Other,
}

async fn path_kind(client: &Client, sandbox: &str, path: &str) -> Result<PathKind> {
    match client.call("stat_file", json!({ "sandbox": sandbox, "path": path })).await {
        Ok(facts) if facts["kind"] == json!("directory") => Ok(PathKind::Directory),
        Ok(_) => Ok(PathKind::Other),
        Err(error) if error.is(Code::FileNotFound) || error.is(Code::SandboxNotFound) => {
            Ok(PathKind::Missing)
        }
        Err(error) => Err(error),
    }
}

/// A path below a directory of the sandbox.
fn join(directory: &str, name: &str) -> String {
    if directory == "." { name.to_owned() } else { format!("{}/{name}", directory.trim_end_matches('/')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_makes_a_sandbox_unless_the_path_says_otherwise() {
        let guest =
            |sandbox: &str, path: &str| Side::Guest { sandbox: sandbox.parse().unwrap(), path: path.into() };
        assert_eq!(side("a:b/c").unwrap(), guest("a", "b/c"));
        assert_eq!(side("a:").unwrap(), guest("a", "."));
        assert_eq!(side("a:/etc/x").unwrap(), guest("a", "/etc/x"));
        assert_eq!(side("./a:b").unwrap(), Side::Host("./a:b".into()));
        assert_eq!(side("/tmp/a:b").unwrap(), Side::Host("/tmp/a:b".into()));
        assert_eq!(side("a:../x").unwrap_err().code, "INVALID_PATH");
        assert_eq!(side("b@d:x").unwrap_err().code, "INVALID_NAME");
    }
}
