//! The backends of this program: what they offer on this host, and how they are opened. Nothing else in this
//! program names a backend's crate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use isle_client::Result;
use isle_core::backend::{Backend, Fact, Offer};
use isle_linux::{Identity, NativeBackend, NativeConfig};

/// What all backends found on this host, by section, and what they offer. Works without a daemon.
pub(crate) fn probe() -> (BTreeMap<String, Vec<Fact>>, Vec<Offer>) {
    isle_linux::probe()
}

/// Where the backends of a daemon keep their state.
pub(crate) struct Directories<'a> {
    pub(crate) state: &'a Path,
    pub(crate) runtime: &'a Path,
}

/// Opens all backends, for a daemon.
pub(crate) async fn open(
    directories: Directories<'_>,
    identity: Identity,
    pool_size: usize,
) -> Result<Vec<Arc<dyn Backend>>> {
    let native = NativeBackend::new(NativeConfig {
        state_dir: directories.state.to_owned(),
        runtime_dir: directories.runtime.to_owned(),
        identity,
        pool_size,
    })
    .await?;
    Ok(vec![native])
}

#[cfg(test)]
mod tests {
    use crate::config::backend_names;

    #[test]
    fn the_settings_know_every_backend() {
        assert_eq!(backend_names::ALL, [isle_linux::NAME]);
    }
}
