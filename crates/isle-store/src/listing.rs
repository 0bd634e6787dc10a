//! What all listings share: pages by key, and a limit on the rows that one page scans, so that a filter
//! without matches does not scan a million rows at once.

use rusqlite::Connection;

use crate::error::StoreError;
use crate::readers::ReadShare;
use crate::store::Store;

/// Maximum number of rows scanned for one page. The page is what was found by then.
pub(crate) const MOST_SCANNED: u32 = 2_048;

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, C = u64> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` for the last one. A page may be short or empty without being the
    /// last.
    pub next: Option<C>,
}

impl Store {
    /// Queues a listing on a separate connection, in the queue of its caller; `answer` is called with the
    /// result on another thread.
    pub fn queue_listing<T: Send + 'static>(
        &self,
        share: ReadShare,
        listing: impl FnOnce(&Listing<'_>) -> Result<T, StoreError> + Send + 'static,
        answer: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let work = move |connection: &Connection| answer(listing(&Listing { connection }));
        self.inner.readers.submit(share, Box::new(work))
    }

    /// Runs a listing on the shared reader, for callers that may block.
    pub(crate) fn listed<T: Send + 'static>(
        &self,
        listing: impl FnOnce(&Listing<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(|connection| listing(&Listing { connection }))
    }
}

/// A connection to list from.
#[derive(Debug)]
pub struct Listing<'a> {
    pub(crate) connection: &'a Connection,
}
