//! All failpoints, in the order of a sandbox's life cycle. The fault tests have to pass each of them, so a
//! point that is no longer reached fails the tests.

/// What can happen at a point.
#[cfg(debug_assertions)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    /// The daemon can crash.
    Die,
    /// The daemon can crash, or the step can return an error.
    Fail,
}

/// Which daemons pass a point.
#[cfg(debug_assertions)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// All of them.
    Everywhere,
    /// Only those whose volumes are disk images, usually root's.
    Images,
    /// Only those whose volumes are directories, usually those of other users.
    Directories,
}

macro_rules! points {
    ($($variant:ident $name:literal $can:ident $place:ident;)*) => {
        /// A failpoint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Point { $($variant,)* }

        #[cfg(debug_assertions)]
        impl Point {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name, as tests arm it.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }

            /// What can happen there.
            #[must_use]
            pub const fn can(self) -> Can { match self { $(Self::$variant => Can::$can,)* } }

            /// Which daemons pass it.
            #[must_use]
            pub const fn place(self) -> Where { match self { $(Self::$variant => Where::$place,)* } }
        }
    };
}

points! {
    // The store: before a change begins, and after its commit.
    StoreBegins "store.begins" Fail Everywhere;
    StoreCommitted "store.committed" Die Everywhere;

    // Creating a sandbox: the engine's steps.
    CreateRecorded "create.recorded" Fail Everywhere;
    CreateMade "create.made" Fail Everywhere;
    CreateConnected "create.connected" Fail Everywhere;
    ResetEmptied "reset.emptied" Fail Everywhere;
    CreateRunning "create.running" Fail Everywhere;
    CreateConfirmed "create.confirmed" Fail Everywhere;

    // Creating a sandbox: the backend's steps.
    NativeSlotReserved "native.slot_reserved" Fail Everywhere;
    NativeRecordWritten "native.record_written" Fail Everywhere;
    NativeTemplateMade "native.template_made" Fail Images;
    NativeImageCopied "native.image_copied" Fail Images;
    NativeImagePlaced "native.image_placed" Fail Images;
    NativeLoopAttached "native.loop_attached" Fail Images;
    NativeVolumeMade "native.volume_made" Fail Directories;
    NativePlaceMade "native.place_made" Fail Everywhere;
    NativeLeased "native.leased" Fail Everywhere;
    NativeCgroupsMade "native.cgroups_made" Fail Everywhere;
    NativeSocketBound "native.socket_bound" Fail Everywhere;
    NativeForkServerStarted "native.fork_server_started" Fail Everywhere;
    NativeProcessMade "native.process_made" Fail Everywhere;
    NativeGreeted "native.greeted" Fail Everywhere;
    NativeHandedOver "native.handed_over" Fail Everywhere;

    // Running a command.
    OneShotMade "one_shot.made" Fail Everywhere;
    OneShotConnected "one_shot.connected" Fail Everywhere;
    OneShotFilled "one_shot.filled" Fail Everywhere;
    ExecRecorded "exec.recorded" Die Everywhere;
    TurnRecorded "turn.recorded" Die Everywhere;
    ExecSent "exec.sent" Fail Everywhere;
    ExecEnded "exec.ended" Die Everywhere;
    ExecFinished "exec.finished" Die Everywhere;
    ExecTold "exec.told" Die Everywhere;
    ExecForgotten "exec.forgotten" Die Everywhere;
    OneShotRemoved "one_shot.removed" Die Everywhere;

    // Output files of a job.
    SpoolBegun "spool.begun" Fail Everywhere;
    SpoolDropped "spool.dropped" Fail Everywhere;
    SpoolWritten "spool.written" Fail Everywhere;
    SpoolSwept "spool.swept" Die Everywhere;

    // Input to a running run.
    InputSent "input.sent" Fail Everywhere;
    InputAudited "input.audited" Die Everywhere;
    AttachAudited "attach.audited" Die Everywhere;

    // Files.
    WriteDone "write.done" Fail Everywhere;
    WriteAudited "write.audited" Die Everywhere;
    RemoveDone "remove.done" Fail Everywhere;
    RemoveAudited "remove.audited" Die Everywhere;
    EditDone "edit.done" Fail Everywhere;
    EditAudited "edit.audited" Die Everywhere;
    MoveDone "move.done" Fail Everywhere;
    MoveAudited "move.audited" Die Everywhere;
    UnpackDone "unpack.done" Fail Everywhere;
    UnpackAudited "unpack.audited" Die Everywhere;
    CopyOutReceived "copy_out.received" Fail Everywhere;
    CopyOutPlaced "copy_out.placed" Fail Everywhere;
    CopyOutAudited "copy_out.audited" Die Everywhere;
    PruneDone "prune.done" Fail Everywhere;
    PruneAudited "prune.audited" Die Everywhere;
    PullDirectoryMade "pull.directory_made" Fail Everywhere;
    PullPruned "pull.pruned" Fail Everywhere;
    SyncStarted "sync.started" Fail Everywhere;
    SyncAudited "sync.audited" Die Everywhere;

    // The network.
    GrantRecorded "grant.recorded" Die Everywhere;
    AuthorityRecorded "authority.recorded" Die Everywhere;
    AuthorityPlaced "authority.placed" Die Everywhere;
    NamespaceGrantRecorded "grant.namespace_recorded" Die Everywhere;
    AnswerRecorded "grant.answer_recorded" Die Everywhere;

    // Secrets.
    VaultKeyMade "vault.key_made" Fail Everywhere;
    SecretRecorded "secret.recorded" Die Everywhere;
    SecretRemoved "secret.removed" Die Everywhere;
    SecretUseRecorded "secret.use_recorded" Die Everywhere;
    SecretUseForgotten "secret.use_forgotten" Die Everywhere;

    // Webhooks.
    WebhookKeyMade "webhook.key_made" Fail Everywhere;
    WebhookRecorded "webhook.recorded" Die Everywhere;
    WebhookDelivered "webhook.delivered" Die Everywhere;
    WebhookPlaced "webhook.placed" Die Everywhere;
    WebhookRemoved "webhook.removed" Die Everywhere;

    // Recreating a sandbox.
    ReplaceMarked "replace.marked" Fail Everywhere;
    ReplaceRemoved "replace.removed" Fail Everywhere;
    ReplaceForgotten "replace.forgotten" Die Everywhere;

    // Deadlines: extended by calls, and last use recorded by the sweeper.
    ExtendRecorded "extend.recorded" Fail Everywhere;
    PauseRecorded "pause.recorded" Fail Everywhere;
    PauseDone "pause.done" Die Everywhere;
    SweepUseRecorded "sweep.use_recorded" Die Everywhere;

    // Removing a sandbox: the engine's steps.
    DestroyMarked "destroy.marked" Fail Everywhere;
    DestroyRemoved "destroy.removed" Fail Everywhere;
    DestroyForgotten "destroy.forgotten" Fail Everywhere;
    WipeRemoved "wipe.removed" Fail Everywhere;

    // Children that are removed with their parent, at their deadline, or on request.
    ChildEnded "child.ended" Fail Everywhere;
    SpawnCountReset "child.count_reset" Die Everywhere;

    // Data copied from one sandbox to another.
    BridgeWritten "bridge.written" Fail Everywhere;
    BridgeAudited "bridge.audited" Die Everywhere;

    // Removing a sandbox: the backend's steps.
    NativeEnded "native.ended" Fail Everywhere;
    NativeLeaseReturned "native.lease_returned" Fail Everywhere;
    NativeCgroupsRemoved "native.cgroups_removed" Fail Everywhere;
    NativePlaceRemoved "native.place_removed" Fail Everywhere;
    NativeSocketRemoved "native.socket_removed" Fail Everywhere;
    NativeLayerRemoved "native.layer_removed" Fail Directories;
    NativeRecordRemoved "native.record_removed" Fail Everywhere;
    NativeWorkspaceRemoved "native.workspace_removed" Fail Everywhere;
    NativeVolumeRemoved "native.volume_removed" Fail Everywhere;

    // Recovery after an earlier daemon.
    NativeFound "native.found" Fail Everywhere;
    NativeHeld "native.held" Fail Everywhere;
    RecoverConnected "recover.connected" Fail Everywhere;
    RecoverPauseTold "recover.pause_told" Die Everywhere;
    RecoverRunsTaken "recover.runs_taken" Die Everywhere;
    RecoverFailureRecorded "recover.failure_recorded" Die Everywhere;
    RecoverUndone "recover.undone" Fail Everywhere;
    RecoverUndoForgotten "recover.undo_forgotten" Die Everywhere;
    RecoverRunLost "recover.run_lost" Die Everywhere;
    RecoverAdopted "recover.adopted" Die Everywhere;
    RecoverSwept "recover.swept" Fail Everywhere;
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::collections::BTreeSet;

    use super::Point;

    #[test]
    fn every_failpoint_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
    }
}
