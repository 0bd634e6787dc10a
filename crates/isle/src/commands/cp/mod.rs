//! `isle cp`: files and directories between this host and a sandbox. What a sandbox says about its
//! files is not trusted: names that would lead elsewhere are refused, links are not followed.

mod download;
mod upload;

use std::path::PathBuf;
use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_engine::values::{GuestPath, SandboxName};
use isle_engine::{Code, Error};
use serde_json::json;

use super::Context;
use crate::arguments::CpArguments;
use crate::output::{Form, escaped, human_bytes, print_json, say};

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
    /// What was left out.
    skipped: Vec<Skipped>,
    /// What was left out besides, without its names.
    unnamed: u64,
}

/// Something that was left out.
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
    let mut copied = Copied { form: context.form, files: 0, bytes: 0, skipped: Vec::new(), unnamed: 0 };
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
        (Side::Host(_), Side::Host(_)) => return Err(refuse("both sides are on this host")),
        (Side::Guest { .. }, Side::Guest { .. }) => return Err(refuse("both sides are in a sandbox")),
    }
    match context.form {
        Form::Json => {
            let skipped: Vec<&str> = copied.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
            let count = skipped.len() as u64 + copied.unnamed;
            print_json(&json!({
                "files": copied.files, "bytes": copied.bytes, "skipped": skipped, "skipped_count": count,
            }));
        }
        Form::Human => {
            for Skipped { path, why } in &copied.skipped {
                say(&format!("skipped {}: {}", escaped(path), escaped(why)));
            }
            if copied.unnamed > 0 {
                say(&format!("skipped {} more", copied.unnamed));
            }
            let word = if copied.files == 1 { "file" } else { "files" };
            say(&format!("copied {} {word}, {}", copied.files, human_bytes(copied.bytes)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse(why: &str) -> isle_client::ClientError {
    Error::new(Code::InvalidArgument, why)
        .next("write one side as NAME:PATH, such as `isle cp data.csv default:data.csv`")
        .next("a host path with a colon is written with ./ in front")
        .into()
}

/// `NAME:PATH` is in a sandbox. A path of this host that contains a colon starts with `/` or `.`.
fn side(text: &str) -> Result<Side> {
    let guest = text
        .split_once(':')
        .filter(|(name, _)| !name.is_empty() && !name.contains('/') && !name.starts_with('.'));
    match guest {
        None => Ok(Side::Host(text.into())),
        Some((name, path)) => {
            let path = if path.is_empty() { "." } else { path };
            let path: GuestPath = path.parse()?;
            Ok(Side::Guest { sandbox: name.parse()?, path: path.as_str().to_owned() })
        }
    }
}

/// What stands at a path of the sandbox.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    Directory,
    Other,
}

async fn standing(client: &Client, sandbox: &str, path: &str) -> Result<Standing> {
    match client.call("stat_file", json!({ "sandbox": sandbox, "path": path })).await {
        Ok(facts) if facts["kind"] == json!("directory") => Ok(Standing::Directory),
        Ok(_) => Ok(Standing::Other),
        Err(error) if error.is(Code::FileNotFound) || error.is(Code::SandboxNotFound) => {
            Ok(Standing::Nothing)
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
