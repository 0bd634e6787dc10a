//! The command line, parsed once. It is written by programs, not by people, so it is strict: an argument that
//! is unknown or given twice is an error.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Shown with every error.
pub(crate) const USAGE: &str = "\
Usage:
  isle-agent fork-server STATE SCRATCH [map|process]
  isle-agent plain --workspace DIR [--home DIR] [--tmp DIR] [--control DIR] --link LINK...
  isle-agent unlinked PID...

LINK is one of:
  stdio          standard input and output, two pipes
  pipes:IN,OUT   two inherited pipes, by descriptor number
  socket:FD      an inherited connected Unix socket
  device:PATH    a character device, such as a virtio-serial port
  listen:PATH    a Unix socket to listen on";

/// What the program was started for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Make sandboxes for a daemon.
    ForkServer(ForkServerOptions),
    /// Be the agent of this process's own surroundings.
    Plain(PlainOptions),
    /// List deleted files that are still open in these processes.
    DeletedFiles(Vec<i32>),
}

/// Options of the fork server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForkServerOptions {
    pub(crate) state: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) kind: ForkServerKind,
}

/// What a fork server makes sandboxes of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkServerKind {
    /// Namespaces, as root.
    Namespaces,
    /// Namespaces in a user namespace that the daemon maps IDs for, because it is not root.
    MappedNamespaces,
    /// Processes without namespaces.
    Processes,
}

/// Options of a plain agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainOptions {
    /// What `/workspace` means.
    pub(crate) workspace: PathBuf,
    /// What `/home/sandbox` means.
    pub(crate) home: PathBuf,
    /// What `/tmp` means.
    pub(crate) tmp: PathBuf,
    /// What `/run/isle` means; there is no control socket without it.
    pub(crate) control: Option<PathBuf>,
    pub(crate) links: Vec<LinkOption>,
}

/// How hosts connect, as given on the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkOption {
    Stdio,
    Pipes { input: RawFd, output: RawFd },
    Socket(RawFd),
    Device(PathBuf),
    Listen(PathBuf),
}

/// Parses what follows the name of the program.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let command = arguments.next().ok_or("a command is missing; isle-agent is started by isle")?;
    match command.as_bytes() {
        b"fork-server" => fork_server(arguments).map(Command::ForkServer),
        b"plain" => plain(arguments).map(Command::Plain),
        b"unlinked" => arguments
            .map(|pid| pid.to_str().and_then(|pid| pid.parse().ok()).ok_or_else(|| invalid("PID", &pid)))
            .collect::<Result<_, _>>()
            .map(Command::DeletedFiles),
        _ => Err(format!("unknown command {}", command.display())),
    }
}

fn fork_server(mut arguments: impl Iterator<Item = OsString>) -> Result<ForkServerOptions, String> {
    let mut directory = |what: &str| {
        arguments.next().map(PathBuf::from).ok_or_else(|| format!("the {what} directory is missing"))
    };
    let (state, scratch) = (directory("state")?, directory("scratch")?);
    let kind = match arguments.next() {
        None => ForkServerKind::Namespaces,
        Some(kind) if kind == "map" => ForkServerKind::MappedNamespaces,
        Some(kind) if kind == "process" => ForkServerKind::Processes,
        Some(kind) => return Err(invalid("kind of fork server", &kind)),
    };
    match arguments.next() {
        None => Ok(ForkServerOptions { state, scratch, kind }),
        Some(more) => Err(format!("unexpected argument {}", more.display())),
    }
}

fn plain(mut arguments: impl Iterator<Item = OsString>) -> Result<PlainOptions, String> {
    let (mut workspace, mut home, mut tmp, mut control) = (None, None, None, None);
    let mut links = Vec::new();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{} needs a value", name.display()))?;
        let directory = match name.as_bytes() {
            b"--workspace" => &mut workspace,
            b"--home" => &mut home,
            b"--tmp" => &mut tmp,
            b"--control" => &mut control,
            b"--link" => {
                links.push(link(&value)?);
                continue;
            }
            _ => return Err(format!("unknown option {}", name.display())),
        };
        let path = std::path::absolute(&value).map_err(|error| format!("{}: {error}", name.display()))?;
        if directory.replace(path).is_some() {
            return Err(format!("{} is given twice", name.display()));
        }
    }
    let workspace = workspace.ok_or("--workspace is missing")?;
    if links.is_empty() {
        return Err("--link is missing".into());
    }
    Ok(PlainOptions {
        home: home.unwrap_or_else(|| workspace.clone()),
        tmp: tmp.unwrap_or_else(std::env::temp_dir),
        workspace,
        control,
        links,
    })
}

fn link(value: &OsStr) -> Result<LinkOption, String> {
    let bytes = value.as_bytes();
    let path = |prefix: &[u8]| {
        let path = bytes.strip_prefix(prefix).filter(|path| !path.is_empty())?;
        Some(PathBuf::from(OsString::from_vec(path.to_vec())))
    };
    let number = |text: &str| text.parse::<RawFd>().ok().filter(|&number| number >= 0);
    let numbers = |prefix: &str| value.to_str()?.strip_prefix(prefix);
    let parsed = if bytes == b"stdio" {
        Some(LinkOption::Stdio)
    } else if let Some(path) = path(b"device:") {
        Some(LinkOption::Device(path))
    } else if let Some(path) = path(b"listen:") {
        Some(LinkOption::Listen(path))
    } else if let Some(text) = numbers("socket:") {
        number(text).map(LinkOption::Socket)
    } else if let Some((input, output)) = numbers("pipes:").and_then(|text| text.split_once(',')) {
        number(input).zip(number(output)).map(|(input, output)| LinkOption::Pipes { input, output })
    } else {
        None
    };
    parsed.ok_or_else(|| invalid("link", value))
}

fn invalid(what: &str, value: &OsStr) -> String {
    format!("invalid {what} {:?}", value.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Command, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn every_kind_of_link_is_understood() {
        let words = ["plain", "--workspace", "/w", "--link", "stdio", "--link", "pipes:3,4"];
        let more = ["--link", "socket:5", "--link", "device:/dev/vport0p1", "--link", "listen:/x/y"];
        let Ok(Command::Plain(options)) = parsed(&[&words[..], &more].concat()) else { panic!() };
        assert_eq!((options.workspace.as_os_str(), options.home.as_os_str()), ("/w".as_ref(), "/w".as_ref()));
        assert_eq!(
            options.links,
            [
                LinkOption::Stdio,
                LinkOption::Pipes { input: 3, output: 4 },
                LinkOption::Socket(5),
                LinkOption::Device("/dev/vport0p1".into()),
                LinkOption::Listen("/x/y".into()),
            ]
        );
    }

    #[test]
    fn what_is_missing_unknown_or_given_twice_is_an_error() {
        for words in [
            &[][..],
            &["serve"],
            &["fork-server", "/s"],
            &["fork-server", "/s", "/t", "plain"],
            &["fork-server", "/s", "/t", "map", "x"],
            &["unlinked", "1", "x"],
            &["plain"],
            &["plain", "--workspace", "/w"],
            &["plain", "--link", "stdio"],
            &["plain", "--workspace"],
            &["plain", "--workspace", "/w", "--workspace", "/w", "--link", "stdio"],
            &["plain", "--workspace", "/w", "--link", "stdio", "--user", "x"],
            &["plain", "--workspace", "/w", "--link", "tcp:1"],
            &["plain", "--workspace", "/w", "--link", "socket:-1"],
            &["plain", "--workspace", "/w", "--link", "pipes:3"],
            &["plain", "--workspace", "/w", "--link", "device:"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
