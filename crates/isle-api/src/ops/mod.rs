//! The operations, one definition each. The file of the same name in `isle-engine` has what it does.

use crate::definition::Definition;

pub mod audit;
pub mod audit_verify;
pub mod bridge;
pub mod children;
pub mod contexts;
pub mod copy_in;
pub mod copy_out;
pub mod create;
pub mod destroy;
pub mod edit_file;
pub mod env;
pub mod events;
pub mod exec;
pub mod extend;
pub mod git_clone;
pub mod health;
pub mod history;
pub mod inspect;
pub mod install;
pub mod jobs;
pub mod kill;
pub mod limits;
pub mod list;
pub mod list_files;
pub mod logs;
pub mod mirror;
pub mod move_file;
pub mod namespace_grants;
pub mod network;
pub mod pause;
pub mod port_url;
pub mod ports;
pub mod read_file;
pub mod remove_file;
pub mod requests;
pub mod reset;
pub mod run;
pub mod run_code;
pub mod run_commands;
pub mod runtimes;
pub mod search_files;
pub mod secrets;
pub mod spawn;
pub mod stat_file;
pub mod stats;
pub mod status;
pub mod sync;
pub mod tokens;
pub mod usage;
pub mod validate;
pub mod wait;
pub mod watch_files;
pub mod webhooks;
pub mod write_files;

/// Hands the list of all operations, in the order they are shown, to a macro. Definitions and handlers are both
/// made from it, so an operation that lacks either does not compile.
#[macro_export]
macro_rules! every_operation {
    ($each:ident) => {
        $each![
            exec::Exec,
            run_code::RunCode,
            read_file::ReadFile,
            write_files::WriteFiles,
            list_files::ListFiles,
            logs::Logs,
            wait::Wait,
            kill::Kill,
            status::Status,
            destroy::Destroy,
            history::History,
            run::RunOnce,
            create::Create,
            list::List,
            contexts::ListContexts,
            contexts::InterruptContext,
            contexts::RestartContext,
            contexts::RemoveContext,
            env::Env,
            validate::Validate,
            install::Install,
            reset::Reset,
            extend::Extend,
            pause::Pause,
            pause::Resume,
            spawn::Spawn,
            children::Children,
            children::DestroyChild,
            children::ResetSpawnCount,
            bridge::Bridge,
            jobs::StartJob,
            jobs::ListJobs,
            jobs::WriteJob,
            run_commands::RunCommands,
            edit_file::EditFile,
            search_files::SearchFiles,
            move_file::MoveFile,
            watch_files::WatchFiles,
            copy_in::CopyIn,
            copy_out::CopyOut,
            sync::SyncStart,
            sync::SyncStop,
            sync::SyncList,
            mirror::SyncPush,
            mirror::SyncPull,
            git_clone::GitClone,
            network::Allow,
            network::RevokeGrant,
            network::Grants,
            network::Net,
            namespace_grants::AllowNamespace,
            namespace_grants::RevokeNamespaceGrant,
            namespace_grants::NamespaceGrants,
            requests::NetworkRequests,
            requests::ApproveRequest,
            requests::DenyRequest,
            ports::Expose,
            ports::Unexpose,
            ports::WaitForPort,
            port_url::PortUrl,
            secrets::SecretSet,
            secrets::SecretList,
            secrets::SecretRemove,
            secrets::SecretAttach,
            secrets::SecretDetach,
            stat_file::StatFile,
            remove_file::RemoveFile,
            audit::Audit,
            audit_verify::AuditVerify,
            limits::Limits,
            usage::Usage,
            inspect::Inspect,
            tokens::CreateToken,
            tokens::ListTokens,
            tokens::RevokeToken,
            events::Events,
            webhooks::AddWebhook,
            webhooks::ListWebhooks,
            webhooks::RemoveWebhook,
            stats::Stats,
            runtimes::Runtimes,
            health::Health,
        ]
    };
}

/// All of them, in the order they are shown.
#[must_use]
pub fn definitions() -> Vec<Definition> {
    macro_rules! define {
        ($($module:ident::$operation:ident,)*) => {
            vec![$(Definition::of::<$module::$operation>(),)*]
        };
    }
    every_operation!(define)
}

#[cfg(test)]
mod tests;
