//! What the files of settings need of the program besides themselves.

use std::io;
use std::path::Path;

use isle_client::ClientError;
use isle_core::Error;

/// An error of a file; never met here, since nothing is opened.
pub(crate) fn cannot(doing: &str, path: &Path, error: &io::Error) -> ClientError {
    Error::internal(format!("cannot {doing} {}: {error}", path.display())).into()
}
