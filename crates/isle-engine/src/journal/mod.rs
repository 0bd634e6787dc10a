//! What the engine writes down and when: intents before they are acted on, ends in one
//! transaction with their audit row. The only place that knows the store's records.

mod audit;
mod sandboxes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use isle_core::clock::wall_clock_ms;
use isle_store::{
    Listing, ReadShare, RunEnd, RunOutput, RunRetention, RunRow, SecretUseRow, Store, StoreError, SyncRow,
    VariableRow,
};
use serde_json::{Value, json};

use crate::context::{CallContext, CallerRole};
use crate::engine::Quotas;
use crate::network::StoredGrant;
use crate::pipeline::{Stage, Stages};
use crate::run::output::KeptOutput;
use crate::run::{Enforcement, Finish, NEVER_RAN, Run, RunKind, lost_note};
use crate::sandbox::Sandbox;
use isle_api::shapes::{CommandRecord, CommandState, RunState};
use isle_core::backend::Lifetime;
use isle_core::values::{Address, JobName, Namespace, RunId};
use isle_core::{Code, Error, Result};

pub(crate) use audit::{Actor, Audit, namespace_of};

/// How many runs end between two looks at what is too old.
const EVICT_EVERY: u64 = 256;
/// An ended run can be read for at least this long, however much its namespace keeps.
const MIN_AGE_MS: i64 = 10 * 60 * 1000;

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Store,
    ended: AtomicU64,
    /// What the ended runs of each namespace may come to, in bytes, and for how long they are kept, in
    /// milliseconds.
    kept_bytes: AtomicU64,
    kept_for_ms: AtomicI64,
    /// Whether old ones are being deleted at the moment.
    evicting: Arc<AtomicBool>,
}

impl Journal {
    pub(crate) fn new(store: Store, quotas: &Quotas) -> Self {
        let journal = Self {
            store,
            ended: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            kept_for_ms: AtomicI64::new(0),
            evicting: Arc::default(),
        };
        journal.keep(quotas);
        journal
    }

    /// Changes how much is kept.
    pub(crate) fn keep(&self, quotas: &Quotas) {
        self.kept_bytes.store(quotas.keep_output.0, Ordering::Relaxed);
        let milliseconds = i64::try_from(quotas.keep_runs_for.0.as_millis()).unwrap_or(i64::MAX);
        self.kept_for_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// The store, for the operations that list what is in it.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Live syncs on record.
    pub(crate) fn syncs(&self) -> Result<Vec<SyncRow>> {
        self.store.syncs().map_err(store_error)
    }

    /// A live sync goes on; the next engine takes it up again.
    pub(crate) fn sync_begins(&self, row: &SyncRow, audit: &Audit) -> Result<()> {
        self.store.begin_sync(row, &audit.0).map_err(store_error)
    }

    /// A live sync was stopped.
    pub(crate) fn sync_ends(&self, id: &str, audit: &Audit) -> Result<()> {
        self.store.end_sync(id, &audit.0).map_err(store_error)
    }

    /// A live sync ended by itself, or cannot be taken up.
    pub(crate) fn forget_sync(&self, id: &str) {
        if let Err(error) = self.store.forget_sync(id) {
            tracing::warn!(sync = id, %error, "a sync that is over could not be taken off the record");
        }
    }

    /// Sandboxes that had children, and how many.
    pub(crate) fn spawns(&self) -> Result<Vec<(String, u32)>> {
        self.store.spawns().map_err(store_error)
    }

    /// Sets such a count back.
    pub(crate) fn reset_spawns(&self, sandbox: &Address, audit: &Audit) -> Result<()> {
        self.store.reset_spawns_audited(&sandbox.to_string(), &audit.0).map_err(store_error)
    }

    /// What all sandboxes of a namespace are granted from now on.
    pub(crate) fn namespace_grants(
        &self,
        namespace: &Namespace,
        grants: &[StoredGrant],
        audit: &Audit,
    ) -> Result<()> {
        let grants = serde_json::to_value(grants).map_err(Error::internal)?;
        self.store.set_namespace_grants(&namespace.to_string(), &grants, &audit.0).map_err(store_error)
    }

    /// The variables of all sandboxes.
    pub(crate) fn variables(&self) -> Result<Vec<VariableRow>> {
        self.store.variables().map_err(store_error)
    }

    /// Changes variables of a sandbox: all of them, or nothing.
    pub(crate) fn change_variables(
        &self,
        sandbox: &Address,
        set: &[(String, String)],
        unset: &[String],
        audit: &Audit,
    ) -> Result<()> {
        self.store.change_variables(&sandbox.to_string(), set, unset, &audit.0).map_err(store_error)
    }

    /// Which secrets a sandbox has from now on.
    pub(crate) fn secret_uses(&self, sandbox: &Address, rows: &[SecretUseRow], audit: &Audit) -> Result<()> {
        self.store.put_secret_uses(&sandbox.to_string(), rows, Some(&audit.0)).map_err(store_error)
    }

    /// Forgets the variables of a name whose workspace is gone.
    pub(crate) fn forget_variables(&self, sandbox: &Address, audit: &Audit) -> Result<()> {
        self.store.forget_variables_audited(&sandbox.to_string(), &audit.0).map_err(store_error)
    }

    /// There was nothing to wipe. Not being able to say so is logged only: the next start finds out again.
    pub(crate) fn forget_wipe(&self, sandbox: &Address) {
        if let Err(error) = self.store.forget_wipe(&sandbox.to_string()) {
            tracing::warn!(%sandbox, %error, "a wipe of nothing stays on record");
        }
    }

    /// A command is about to be sent.
    pub(crate) fn begin_run(&self, run: &Run, actor: &Actor) -> Result<()> {
        let named = run.sandbox.spec.lifetime == Lifetime::Named;
        let row = RunRow {
            id: run.id.to_string(),
            namespace: run.sandbox.namespace.to_string(),
            sandbox_id: run.sandbox.id.to_string(),
            sandbox_name: named.then(|| run.sandbox_name().to_string()),
            door: actor.door.clone(),
            actor: actor.name.clone(),
            kind: run.kind.as_str().into(),
            job: run.job.as_ref().map(ToString::to_string),
            command: run.command.clone(),
            started_at_ms: run.started_at_ms,
            state: run.state().as_str().into(),
            locked: run.locked,
            terminal: run.terminal,
            commands: command_records(&run.command_records()),
            violations: Value::Array(Vec::new()),
            limits_hit: Value::Array(Vec::new()),
            containment: json!(Enforcement::of(&run.sandbox)),
            ..RunRow::default()
        };
        self.store.begin_run(&row).map_err(|error| match error {
            StoreError::JobTaken { name } => job_taken(run, &name),
            error => store_error(error),
        })
    }

    /// A run that waited has its turn, and is about to be sent.
    pub(crate) fn run_starts(&self, run: &Run) -> Result<()> {
        self.store.start_run(run.id.as_str()).map_err(store_error)
    }

    /// The newest run of that name in each sandbox of a namespace: sandbox and run.
    pub(crate) fn jobs_named(&self, namespace: &Namespace, job: &JobName) -> Result<Vec<(String, String)>> {
        self.store.jobs_named(namespace.as_str(), job.as_str()).map_err(store_error)
    }

    /// A run somebody began in a sandbox before its record was lost.
    pub(crate) fn adopt_run(&self, sandbox: &Sandbox, run: &str) -> Result<RunRow> {
        let actor = Actor::engine();
        let row = RunRow {
            id: run.to_owned(),
            namespace: sandbox.namespace.to_string(),
            sandbox_id: sandbox.id.to_string(),
            sandbox_name: Some(sandbox.name.to_string()),
            door: actor.door,
            actor: actor.name,
            kind: RunKind::Exec.as_str().into(),
            command: "(its record was lost)".into(),
            started_at_ms: wall_clock_ms(),
            state: RunState::Running.as_str().into(),
            violations: Value::Array(Vec::new()),
            ..RunRow::default()
        };
        self.store.begin_run(&row).map_err(store_error)?;
        Ok(row)
    }

    /// It has ended: its record, its output and its audit row, all or nothing.
    pub(crate) fn finish_run(&self, run: &Run, finish: &Finish, actor: &Actor, stages: Stages) -> Result<()> {
        let (stdout, stderr) = run.kept();
        let end = RunEnd {
            state: finish.state.as_str().into(),
            exit_code: finish.exit_code,
            signal: finish.signal,
            duration_ms: Some(finish.duration_ms),
            cpu_us: finish.cpu_us,
            peak_rss_kib: finish.peak_rss_kib,
            io_read_bytes: finish.transferred.map(|moved| moved.read_bytes),
            io_write_bytes: finish.transferred.map(|moved| moved.written_bytes),
            network: finish.network,
            peak_tasks: finish.most_tasks.map(u64::from),
            stdout_bytes: stdout.total,
            stderr_bytes: stderr.total,
            ended_at_ms: wall_clock_ms(),
            note: finish.note.clone(),
            violations: serde_json::to_value(&finish.violations).map_err(Error::internal)?,
            limits_hit: serde_json::to_value(&finish.limits_hit).map_err(Error::internal)?,
            commands: command_records(&finish.commands),
            output: RunOutput {
                stdout_head: stdout.head,
                stdout_tail: stdout.tail,
                stderr_head: stderr.head,
                stderr_tail: stderr.tail,
            },
        };
        let detail = json!({
            "command": run.command,
            "state": finish.state,
            "exit_code": finish.exit_code,
            "duration_ms": finish.duration_ms,
            "sandbox_id": run.sandbox.id,
            "tier": run.sandbox.spec.tier,
            "limits_hit": finish.limits_hit.iter().map(|hit| hit.limit).collect::<Vec<_>>(),
            "stages": stages.list().map(Stage::as_str).collect::<Vec<_>>(),
            "network": run.reach,
        });
        let entry = actor.entry(
            run.kind.as_str(),
            Some(run.sandbox_name().to_string()),
            Some(run.id.to_string()),
            detail,
        );
        self.store.finish_run(run.id.as_str(), &end, &entry).map_err(store_error)
    }

    /// A run whose end nobody saw.
    pub(crate) fn run_lost(&self, row: &RunRow, why: &str) -> Result<()> {
        // A run that waited for its turn was never sent.
        let waited = row.state == RunState::Queued.as_str();
        let (state, note) =
            if waited { (RunState::Cancelled, NEVER_RAN.into()) } else { (RunState::Lost, lost_note(why)) };
        let mut commands: Vec<CommandRecord> =
            serde_json::from_value(row.commands.clone()).unwrap_or_default();
        for command in &mut commands {
            command.state = if waited { CommandState::NotRun } else { CommandState::Lost };
        }
        let end = RunEnd {
            state: state.as_str().into(),
            commands: command_records(&commands),
            duration_ms: u64::try_from(wall_clock_ms() - row.started_at_ms).ok().filter(|_| !waited),
            ended_at_ms: wall_clock_ms(),
            note: Some(note.clone()),
            violations: Value::Array(Vec::new()),
            limits_hit: Value::Array(Vec::new()),
            ..RunEnd::default()
        };
        let name = row.sandbox_name.clone().unwrap_or_else(|| row.sandbox_id.clone());
        let detail = json!({ "command": row.command, "state": state, "what": note });
        let entry = Actor::of_run(row).entry(&row.kind, Some(name), Some(row.id.clone()), detail);
        self.store.finish_run(&row.id, &end, &entry).map_err(store_error)
    }

    /// The record of a run.
    pub(crate) fn run(&self, id: &RunId) -> Result<Option<RunRow>> {
        self.store.run(id.as_str()).map_err(store_error)
    }

    /// Has a listing made in the turn of the caller, beside everything else: nobody waits for it, and it
    /// waits for nothing but other listings of the same caller.
    pub(crate) async fn listed<T: Send + 'static>(
        &self,
        context: &CallContext,
        listing: impl FnOnce(&Listing<'_>) -> std::result::Result<T, StoreError> + Send + 'static,
    ) -> Result<T> {
        let share = match context.role {
            CallerRole::Operator => ReadShare::Operator,
            CallerRole::Tenant => ReadShare::Namespace(context.namespace.to_string()),
        };
        let (answer, answered) = tokio::sync::oneshot::channel();
        // A caller that went away hears nothing.
        let tell = move |outcome| drop(answer.send(outcome));
        self.store.queue_listing(share, listing, tell).map_err(store_error)?;
        answered.await.map_err(|_| Error::internal("the listing failed"))?.map_err(store_error)
    }

    /// What is kept of the output of an ended run.
    pub(crate) fn run_output(&self, id: &RunId, row: &RunRow) -> Result<(KeptOutput, KeptOutput)> {
        let output = self.store.run_output(id.as_str()).map_err(store_error)?.unwrap_or_default();
        let stdout =
            KeptOutput { head: output.stdout_head, tail: output.stdout_tail, total: row.stdout_bytes };
        let stderr =
            KeptOutput { head: output.stderr_head, tail: output.stderr_tail, total: row.stderr_bytes };
        Ok((stdout, stderr))
    }

    /// Puts a row on record. What it tells of has already happened, so a caller who is told of it must
    /// also be told when there is no record.
    pub(crate) fn audit(&self, audit: &Audit) -> Result<()> {
        self.store.append_audit(&audit.0).map(drop).map_err(|error| {
            tracing::error!(action = %audit.0.action, %error, "an audit row could not be written");
            store_error(error)
        })
    }

    /// Counts ended runs, and now and then drops the oldest.
    pub(crate) fn run_ended(&self) {
        if self.ended.fetch_add(1, Ordering::Relaxed) % EVICT_EVERY == EVICT_EVERY - 1 {
            self.evict();
        }
    }

    /// Drops the oldest runs beyond what is kept, where nobody waits for it.
    fn evict(&self) {
        if self.evicting.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, evicting, retention) = (self.store.clone(), Arc::clone(&self.evicting), self.retention());
        in_background(move || {
            evict(&store, &retention);
            evicting.store(false, Ordering::Release);
        });
    }

    /// The same on this thread, which may wait.
    pub(crate) fn evict_now(&self) {
        evict(&self.store, &self.retention());
    }

    fn retention(&self) -> RunRetention {
        RunRetention {
            min_age_ms: MIN_AGE_MS,
            max_age_ms: self.kept_for_ms.load(Ordering::Relaxed),
            max_bytes: self.kept_bytes.load(Ordering::Relaxed),
        }
    }
}

fn evict(store: &Store, retention: &RunRetention) {
    if let Err(error) = store.evict(retention, wall_clock_ms()) {
        tracing::warn!(%error, "old runs could not be removed");
    }
}

/// Does what takes a while, and what nobody waits for, on a thread where it holds nobody up.
pub(crate) fn in_background(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

fn command_records(records: &[CommandRecord]) -> Value {
    if records.is_empty() { Value::Null } else { json!(records) }
}

fn job_taken(run: &Run, name: &str) -> Error {
    let sandbox = run.sandbox_name();
    Error::new(Code::JobExists, format!("a job named {name} goes on in the sandbox {sandbox}"))
        .detail("job", format!("{sandbox}:{name}"))
        .next(format!("choose another name, or end that job first: kill `{sandbox}:{name}`"))
}

/// The state of a stored run.
pub(crate) fn state_from(text: &str) -> RunState {
    const ALL: [RunState; 9] = [
        RunState::Queued,
        RunState::Running,
        RunState::Completed,
        RunState::Failed,
        RunState::TimedOut,
        RunState::OomKilled,
        RunState::Killed,
        RunState::Cancelled,
        RunState::Lost,
    ];
    // The store refuses every other word.
    ALL.into_iter().find(|state| state.as_str() == text).unwrap_or(RunState::Lost)
}

/// What a failure of the store means to a caller.
pub(crate) fn store_error(error: StoreError) -> Error {
    let message = error.to_string();
    match error {
        StoreError::Full => Error::new(Code::NoSpace, "the host's disk is full, so nothing can be recorded")
            .next("free space on the disk of the state directory; nothing was started"),
        StoreError::Broken { .. } => Error::new(Code::DiskBroken, message)
            .next("the host's kernel log tells of the disk; what runs goes on, and nothing new is begun")
            .next(
                "a disk that works again is noticed by itself; one that became read-only needs a new start",
            ),
        StoreError::TooNew { .. } => {
            Error::new(Code::StateTooNew, message).next("use the newer program, or another state directory")
        }
        StoreError::RunNotFound { .. } => {
            Error::new(Code::RunNotFound, message).next("`history` lists the runs that are recorded")
        }
        StoreError::TooManyListings { .. } | StoreError::Interrupted => {
            Error::new(Code::Busy, message).next("ask again when an earlier answer has arrived")
        }
        StoreError::LimitOutOfRange { .. } => {
            Error::new(Code::InvalidArgument, message).next("choose a limit in that range")
        }
        _ => Error::internal(message),
    }
}
