//! A future that is completed even when it is dropped. A client that disconnects must not leave a partly created
//! sandbox behind, nor cancel a run it was only watching.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Polls a future; when dropped before it is ready, a task completes it. No task is spawned otherwise.
pub struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
}

impl<T: Send + 'static> RunToCompletion<T> {
    /// Wraps a future.
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)) }
    }
}

impl<T: Send + 'static> std::fmt::Debug for RunToCompletion<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RunToCompletion").field("finished", &self.work.is_none()).finish()
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let (Some(work), Ok(runtime)) = (self.work.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            work.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::RunToCompletion;

    #[tokio::test]
    async fn work_dropped_halfway_is_finished() {
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let (done, finished) = tokio::sync::oneshot::channel::<()>();
        let mut call = RunToCompletion::new(async move {
            let _ = gate.await;
            let _ = done.send(());
        });
        assert!(futures_poll_once(&mut call).await.is_pending());
        drop(call);
        go.send(()).unwrap();
        finished.await.unwrap();
    }

    async fn futures_poll_once<T: Send + 'static>(call: &mut RunToCompletion<T>) -> std::task::Poll<T> {
        std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *call).poll(context)))
            .await
    }
}
