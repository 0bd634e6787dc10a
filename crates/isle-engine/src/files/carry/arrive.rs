//! From the host into a sandbox.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_fail::Point;
use isle_trees::{Kind, PackOptions, Packer};
use isle_wire::GuestUser;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::host::host_error;
use super::{CarriedShape, FileCopies, HostPlace, TransferProgress, carried_shape};
use crate::agent::{FileToWrite, KeepMode};
use crate::context::CallContext;
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

/// Read at once.
const PIECE: usize = 256 * 1024;
/// Pieces on their way.
const AHEAD: usize = 4;
const COPYING: &str = "copying in";

/// Pieces that a thread makes, as a stream.
pub(crate) fn stream_of_pieces(receiver: mpsc::Receiver<Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
    stream::unfold(
        receiver,
        |mut receiver| async move { receiver.recv().await.map(|piece| (piece, receiver)) },
    )
    .boxed()
}

/// Packs a tree of the host on a thread of its own; what was left out comes when it is through.
pub(crate) fn pack_on_host(
    top: OwnedFd,
    only: Option<Vec<Vec<u8>>>,
) -> Result<(BoxStream<'static, Result<Bytes>>, tokio::task::JoinHandle<isle_wire::Carried>)> {
    let options = PackOptions { sparse_limit: 1 << 30, only };
    let mut packer = Packer::new(top, options).map_err(Error::internal)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let packing = tokio::task::spawn_blocking(move || {
        while let Some(piece) = packer.piece() {
            if sender.blocking_send(Ok(piece.into())).is_err() {
                break;
            }
        }
        packer.carried().clone()
    });
    Ok((stream_of_pieces(receiver), packing))
}

impl FileCopies {
    /// Copies a file or tree of the host to exactly this place of a sandbox.
    pub(crate) async fn copy_in(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        from: &HostPlace,
        to: &GuestPath,
        user: GuestUser,
    ) -> Result<CarriedShape> {
        let (opened, kind) = from.open()?;
        let detail = json!({ "host_path": from.shown().display().to_string() });
        match kind {
            Kind::Directory => {
                let (body, packing) = pack_on_host(opened, None)?;
                let body = TransferProgress::new(context, COPYING, None).over(body);
                let mut carried = self.unpack_in(context, sandbox, to, user, body, detail).await?;
                let packed = packing.await.map_err(Error::internal)?;
                let packed = carried_shape(packed);
                (carried.skipped, carried.skipped_count) = (packed.skipped, packed.skipped_count);
                Ok(carried)
            }
            Kind::File => {
                let stat =
                    rustix::fs::fstat(&opened).map_err(|error| host_error(from.shown(), &error.into()))?;
                let file = tokio::fs::File::from_std(std::fs::File::from(opened));
                let body = stream::try_unfold(file, |mut file| async move {
                    let mut piece = Vec::with_capacity(PIECE);
                    match file.read_buf(&mut piece).await {
                        Ok(0) => Ok(None),
                        Ok(_) => Ok(Some((Bytes::from(piece), file))),
                        Err(error) => {
                            Err(Error::internal(format!("the host's file cannot be read: {error}")))
                        }
                    }
                })
                .boxed();
                let size = u64::try_from(stat.st_size).ok();
                let body = TransferProgress::new(context, COPYING, size).over(body);
                let (mode, keep_mode) = (stat.st_mode & 0o777, KeepMode::No);
                let file = FileToWrite { path: to.clone(), mode, append: false, keep_mode, body };
                let sizes = sandbox.agent()?.write_files(user, vec![file]).await?;
                failpoint(Point::WriteDone)?;
                let bytes = sizes.first().copied().unwrap_or(0);
                let carried = CarriedShape { files: 1, bytes, ..CarriedShape::default() };
                let mut detail = carried.audited(detail);
                detail["path"] = json!(to);
                let audit = Audit::files(context, "copy_in", sandbox, detail);
                self.journal.audit(&audit).map_err(|error| error.unrecorded("the file was copied"))?;
                isle_fail::pass(Point::WriteAudited);
                Ok(carried)
            }
            Kind::Symlink | Kind::Other => Err(Error::new(
                Code::NotRegular,
                format!("{} is no file or directory", from.shown().display()),
            )
            .next("name a file or directory of the host")),
        }
    }
}
