//! How many fresh one-shots a second eight clients get, beside eight bubblewrap callers. Blocks of
//! both take turns; a block is long enough that sandboxes made ready before it do not matter.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{Bench, TrueCall};
use crate::error::Result;
use crate::peers::bubblewrap;
use crate::report::{Report, Row, Target};
use crate::statistics::Samples;

const SECTION: &str = "throughput";
const CLIENTS: usize = 8;
/// Between blocks: what one block left undone must not slow the next.
const SETTLE: Duration = Duration::from_millis(300);

impl Bench {
    pub(super) fn throughput(&self, report: &mut Report) -> Result<()> {
        let bubblewrap = match bubblewrap::command() {
            Ok(command) => Some(command),
            Err(reason) => {
                report.skip("throughput beside bwrap", reason);
                None
            }
        };
        let daemon = self.daemon()?;
        let (blocks, per_client) = self.choose((2, 10), (7, 40), (15, 40));
        let mut calls = (0..CLIENTS).map(|_| TrueCall::fresh(&daemon)).collect::<Result<Vec<_>>>()?;
        for call in &mut calls {
            call.time()?;
        }
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..blocks {
            if let Some(command) = &bubblewrap {
                let mut commands = vec![command; CLIENTS];
                theirs.push(block(&mut commands, per_client, |command| command.time())?);
                thread::sleep(SETTLE);
            }
            ours.push(block(&mut calls, per_client, TrueCall::time)?);
            thread::sleep(SETTLE);
        }
        drop(calls);
        daemon.stop()?;
        let row = Row::new(SECTION, "isle, fresh sandboxes through the socket, 8 clients", "/s", &ours);
        if theirs.count() == 0 {
            report.add(row);
            return Ok(());
        }
        report.add(row.against("bwrap, 8 clients", theirs.median()).target(Target::AtLeast(1.5)));
        report.add(Row::new(SECTION, "bwrap command, hardened, 8 clients", "/s", &theirs));
        Ok(())
    }
}

/// All clients at once, each so many times; gives calls per second.
fn block<C: Send>(
    clients: &mut [C],
    per_client: u32,
    call: impl Fn(&mut C) -> Result<Duration> + Sync,
) -> Result<f64> {
    let start = Barrier::new(clients.len() + 1);
    let total = f64::from(per_client) * f64::from(u32::try_from(clients.len()).unwrap_or(u32::MAX));
    thread::scope(|scope| {
        let working: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(|| {
                    start.wait();
                    (0..per_client).try_for_each(|_| call(client).map(drop))
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        for worker in working {
            worker.join().map_err(|_| std::io::Error::other("a client panicked"))??;
        }
        Ok(total / begin.elapsed().as_secs_f64())
    })
}
