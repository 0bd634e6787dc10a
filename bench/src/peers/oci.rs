//! runc, crun and runsc: one bundle, a one-shot `run`, and `exec` in a container that stays.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::rootfs::Rootfs;
use super::{find, prepare};
use crate::error::Result;
use crate::spawn::Prepared;

/// A runtime with a container that waits for execs.
#[derive(Debug)]
pub(crate) struct Runtime {
    program: PathBuf,
    options: Vec<OsString>,
    waiting: String,
    pub(crate) run: Prepared,
    pub(crate) exec: Prepared,
}

impl Runtime {
    pub(crate) fn prepare(name: &str, rootfs: &Rootfs) -> Result<Self, String> {
        let program = find(name)?;
        let state = rootfs.beside(&format!("{name}-state"));
        let mut options: Vec<OsString> = vec!["--root".into(), state.into()];
        if name == "runsc" {
            options.push("--network=none".into());
        }
        let once = bundle(&program, name, "once", rootfs, &["/bin/true"])?;
        let stays = bundle(&program, name, "stays", rootfs, &["/bin/sleep", "1000000"])?;
        let waiting = format!("isle-bench-{name}-{}", std::process::id());
        let command = |words: &[&str]| {
            let all: Vec<OsString> = [program.clone().into_os_string()]
                .into_iter()
                .chain(options.iter().cloned())
                .chain(words.iter().map(OsString::from))
                .collect();
            Prepared::new(&all).map_err(|error| error.to_string())
        };
        let run = command(&["run", "--bundle", &once.to_string_lossy(), &format!("{waiting}-once")])?;
        let exec = command(&["exec", &waiting, "/bin/true"])?;
        let runtime = Self { program, options, waiting, run, exec };
        // Its streams stay open in the container, so they must not be pipes that are read to the end.
        let log =
            fs::File::create(rootfs.beside(&format!("{name}.log"))).map_err(|error| error.to_string())?;
        let mut detached =
            runtime.command(&["run", "--detach", "--bundle", &stays.to_string_lossy(), &runtime.waiting]);
        let status = detached.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).status();
        if !status.map_err(|error| error.to_string())?.success() {
            let words = fs::read_to_string(rootfs.beside(&format!("{name}.log"))).unwrap_or_default();
            let last = words.lines().last().unwrap_or_default().to_owned();
            return Err(format!("installed, but it does not work here: {last}"));
        }
        for probe in [&runtime.run, &runtime.exec] {
            probe.time().map_err(|error| format!("installed, but it does not work here: {error}"))?;
        }
        Ok(runtime)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(words);
        command
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(problem) = prepare(&mut self.command(&["delete", "--force", &self.waiting])) {
            eprintln!("isle-bench: the container {} may be left behind: {problem}", self.waiting);
        }
    }
}

/// The runtime's own default configuration with our command in it.
fn bundle(
    program: &Path,
    name: &str,
    kind: &str,
    rootfs: &Rootfs,
    words: &[&str],
) -> Result<PathBuf, String> {
    let directory = rootfs.beside(&format!("{name}-{kind}"));
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(&directory)?;
        let specified = prepare(Command::new(program).arg("spec").current_dir(&directory));
        specified.map_err(std::io::Error::other)?;
        let file = directory.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(words);
        config["root"] = json!({ "path": rootfs.path(), "readonly": true });
        fs::write(&file, config.to_string())
    };
    make().map_err(|error| error.to_string())?;
    Ok(directory)
}
