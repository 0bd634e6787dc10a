//! Ten megabytes written into a sandbox and read back, beside `docker cp` both ways.

use std::fs;
use std::time::{Duration, Instant};

use super::{Bench, SANDBOX};
use crate::arms::{Arm, Pace, interleave};
use crate::error::{Error, Result};
use crate::http::{Connection, request};
use crate::peers::docker::Docker;
use crate::peers::rootfs::Rootfs;
use crate::report::{Report, Row, Target};

const SECTION: &str = "files";
const SIZE: usize = 10_000_000;
const DOCKER: &str = "docker cp, 10 MB in and out";
const ISLE: &str = "isle, 10 MB in and out through the API";

impl Bench {
    pub(super) fn files(&self, report: &mut Report) -> Result<()> {
        let daemon = self.daemon()?;
        // No runs of equal bytes, so that compression has no effect.
        let content: Vec<u8> =
            (0..SIZE).map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let path = format!("/v1/sandboxes/{SANDBOX}/files/content?path=/workspace/file");
        let write = request("PUT", &path, &[("content-type", "application/octet-stream")], &content);
        let read = request("GET", &path, &[], b"");
        let mut connection = daemon.connect()?;
        // Makes the sandbox.
        super::TrueCall::warm(&daemon, SANDBOX)?.time()?;

        let docker =
            Rootfs::build().and_then(|rootfs| Docker::prepare(&rootfs).map(|docker| (docker, rootfs)));
        let copies = match &docker {
            Ok((docker, rootfs)) => {
                let (file, back) = (rootfs.beside("file"), rootfs.beside("back"));
                fs::write(&file, &content)?;
                Some(docker.copies(&file, &back)?)
            }
            Err(reason) => {
                report.skip("docker cp", reason);
                None
            }
        };
        let mut arms =
            vec![Arm::new(ISLE, Pace::Whole, || there_and_back(&mut connection, &write, &read, &content))];
        if let Some([inwards, outwards]) = &copies {
            arms.push(Arm::new(DOCKER, Pace::Whole, || Ok(inwards.time()? + outwards.time()?)));
        }
        let measured = interleave(arms, self.choose(3, 20, 50))?;
        let docker_median =
            measured.iter().find(|(name, _)| name == DOCKER).map(|(_, samples)| samples.median());
        for (name, samples) in &measured {
            let row = Row::new(SECTION, name.clone(), "ms", samples);
            report.add(match docker_median {
                // Five times faster is a fifth of the time.
                Some(median) if name == ISLE => row.against(DOCKER, median).target(Target::AtMost(0.2)),
                _ => row,
            });
        }
        drop(connection);
        daemon.stop()
    }
}

fn there_and_back(
    connection: &mut Connection,
    write: &[u8],
    read: &[u8],
    content: &[u8],
) -> Result<Duration> {
    let begin = Instant::now();
    connection.exchange(write)?.ok("PUT files/content")?;
    let back = connection.exchange(read)?.ok("GET files/content")?;
    let took = begin.elapsed();
    if back == content {
        Ok(took)
    } else {
        Err(Error::answer("GET files/content", b"something else than was written"))
    }
}
