//! How far a transfer is, for whoever waits for it: counted where the bytes pass, told a few times a
//! second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::context::{CallContext, Progress, ProgressSink};
use isle_core::Result;

/// How often it is told.
pub(crate) const PACE: Duration = Duration::from_millis(250);

/// One transfer. The first bytes are told at once, so that a caller knows that it goes on.
pub(crate) struct TransferProgress {
    sink: Option<ProgressSink>,
    what: &'static str,
    total: Option<u64>,
    done: u64,
    told: Option<Instant>,
}

impl TransferProgress {
    pub(crate) fn new(context: &CallContext, what: &'static str, total: Option<u64>) -> Self {
        Self { sink: context.progress.clone(), what, total, done: 0, told: None }
    }

    /// So many bytes more.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        let Some(sink) = &self.sink else { return };
        if self.told.is_none_or(|told| told.elapsed() >= PACE) {
            self.told = Some(Instant::now());
            sink(progress(self.what, self.done, self.total));
        }
    }

    /// Counts what passes.
    pub(crate) fn over(
        mut self,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxStream<'static, Result<Bytes>> {
        body.inspect(move |piece| {
            if let Ok(piece) = piece {
                self.add(piece.len());
            }
        })
        .boxed()
    }
}

/// The same bytes, added to a count that others read.
pub(crate) fn counted(
    body: BoxStream<'static, Result<Bytes>>,
    count: Arc<AtomicU64>,
) -> BoxStream<'static, Result<Bytes>> {
    body.inspect(move |piece| {
        if let Ok(piece) = piece {
            count.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    })
    .boxed()
}

/// A sign of life of a transfer.
#[expect(clippy::cast_precision_loss, reason = "nobody counts single bytes of petabytes")]
pub(crate) fn progress(what: &str, done: u64, total: Option<u64>) -> Progress {
    let message = match total {
        Some(total) => format!("{what}: {} of {}", shown(done), shown(total)),
        None => format!("{what}: {}", shown(done)),
    };
    Progress { progress: done as f64, total: total.map(|total| total as f64), message }
}

fn shown(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(size, _)| bytes >= *size) {
        None => format!("{bytes} B"),
        Some((size, unit)) => format!("{}.{} {unit}", bytes / size, bytes % size * 10 / size),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::context::Door;

    #[test]
    fn the_first_bytes_are_told_at_once_and_the_next_not_before_their_time() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut context = CallContext::new(Door::Library, "test");
        let heard = told.clone();
        context.progress = Some(Arc::new(move |update: Progress| heard.lock().unwrap().push(update)));
        let mut progress = TransferProgress::new(&context, "copying in", Some(3 << 20));
        for _ in 0..3 {
            progress.add(1 << 20);
        }
        let told = told.lock().unwrap();
        assert_eq!(told[0].message, "copying in: 1.0 MiB of 3.0 MiB");
        assert_eq!(told[0].total, Some(f64::from(3 << 20)));
        assert!(told.len() < 3 || told[2].progress > told[1].progress);
    }

    #[test]
    fn sizes_are_shown_with_one_digit() {
        assert_eq!(shown(900), "900 B");
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(5 << 30), "5.0 GiB");
    }
}
