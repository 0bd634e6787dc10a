//! Docker: `docker run`, exec through its API on a kept connection, and `docker cp`.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rootfs::Rootfs;
use super::{find, prepare};
use crate::error::{Error, Result};
use crate::http::{Connection, contains, json_request, request};
use crate::spawn::Prepared;

const SOCKET: &str = "/var/run/docker.sock";

/// An image and a container that waits for execs and copies.
#[derive(Debug)]
pub(crate) struct Docker {
    program: PathBuf,
    container: String,
    image: String,
}

impl Docker {
    pub(crate) fn prepare(rootfs: &Rootfs) -> Result<Self, String> {
        let program = find("docker")?;
        if UnixStream::connect(SOCKET).is_err() {
            return Err("installed, but no daemon answers".into());
        }
        let name = format!("isle-bench-{}", std::process::id());
        let archive = rootfs.beside("rootfs.tar");
        prepare(Command::new("tar").arg("-C").arg(rootfs.path()).arg("-cf").arg(&archive).arg("."))?;
        prepare(Command::new(&program).arg("import").arg(&archive).arg(&name))?;
        let docker = Self { program, container: name.clone(), image: name };
        let run = ["run", "--detach", "--network", "none", "--name", &docker.container, &docker.image];
        prepare(Command::new(&docker.program).args(run).args(["/bin/sleep", "1000000"]))?;
        Ok(docker)
    }

    /// The command that runs `/bin/true` in a fresh container.
    pub(crate) fn run(&self) -> Result<Prepared> {
        let program = self.program.to_string_lossy();
        let words = [&program, "run", "--rm", "--network", "none", &self.image, "/bin/true"];
        Prepared::new(&words)?.variable("HOME", "/root")
    }

    /// The commands that copy a file in and out.
    pub(crate) fn copies(&self, file: &Path, back: &Path) -> Result<[Prepared; 2]> {
        let program = self.program.to_string_lossy();
        let (file, back) = (file.to_string_lossy(), back.to_string_lossy());
        let inside = format!("{}:/tmp/file", self.container);
        Ok([
            Prepared::new(&[&*program, "cp", "-q", &file, &inside])?.variable("HOME", "/root")?,
            Prepared::new(&[&*program, "cp", "-q", &inside, &back])?.variable("HOME", "/root")?,
        ])
    }

    /// Exec through the API: make it, start it and read it to its end, ask for its exit code.
    pub(crate) fn time_exec(&self) -> Result<Duration> {
        let begin = Instant::now();
        let mut connection = Connection::unix(Path::new(SOCKET))?;
        let wish = json!({ "Cmd": ["/bin/true"], "AttachStdout": true, "AttachStderr": true });
        let path = format!("/containers/{}/exec", self.container);
        let made = connection.exchange(&json_request("POST", &path, &wish))?.ok("docker exec")?;
        let made: Value = serde_json::from_slice(&made).map_err(std::io::Error::other)?;
        let id =
            made["Id"].as_str().ok_or_else(|| Error::answer("docker exec", made.to_string().as_bytes()))?;
        let start =
            json_request("POST", &format!("/exec/{id}/start"), &json!({ "Detach": false, "Tty": false }));
        // Its answer lasts until the end of the connection.
        Connection::unix(Path::new(SOCKET))?.exchange_to_end(&start)?;
        let ended =
            connection.exchange(&request("GET", &format!("/exec/{id}/json"), &[], b""))?.ok("docker exec")?;
        let took = begin.elapsed();
        if contains(&ended, r#""ExitCode":0"#) { Ok(took) } else { Err(Error::answer("docker exec", &ended)) }
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let remove = ["rm", "--force", &self.container];
        let forget = ["rmi", "--force", &self.image];
        for words in [remove, forget] {
            if let Err(problem) = prepare(Command::new(&self.program).args(words)) {
                eprintln!("isle-bench: docker {} failed: {problem}", words.join(" "));
            }
        }
    }
}
