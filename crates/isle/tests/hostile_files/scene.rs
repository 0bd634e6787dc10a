//! A host with something to steal, and a sandbox whose guest wants it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::TestDaemon;
use crate::harness::http::{Answer, unix_raw};

/// What must never come out of a sandbox's file operations.
pub(crate) const SECRET: &str = "canary-of-the-host";

/// A daemon, one sandbox, and a directory of the host with a secret in it that anybody may read and this
/// user may change: no permission stands between it and the guest.
pub(crate) struct Scene {
    pub(crate) daemon: TestDaemon,
    host: PathBuf,
    root: Option<tempfile::TempDir>,
}

impl Scene {
    pub(crate) fn new(tier: &str) -> Self {
        Self::on(TestDaemon::start(), tier)
    }

    /// The same with a directory that the daemon may write to for its callers.
    pub(crate) fn with_root(tier: &str) -> Self {
        let root = tempfile::Builder::new().prefix("isle-test-root-").tempdir().unwrap();
        let daemon = TestDaemon::start_with(&[("ISLE_HOST_ROOTS", root.path().to_str().unwrap())]);
        Self { root: Some(root), ..Self::on(daemon, tier) }
    }

    fn on(daemon: TestDaemon, tier: &str) -> Self {
        let host = daemon.home().path().join("host");
        std::fs::create_dir(&host).unwrap();
        std::fs::write(host.join("x"), SECRET).unwrap();
        daemon.post("/v1/sandboxes", json!({"sandbox": "box", "tier": tier}));
        Self { daemon, host, root: None }
    }

    /// The directory the daemon may write to.
    pub(crate) fn root(&self) -> &Path {
        self.root.as_ref().unwrap().path()
    }

    /// The directory with the secret, which is in the file `x`.
    pub(crate) fn host(&self) -> &Path {
        &self.host
    }

    /// Nothing was added to it, removed from it or changed in it.
    pub(crate) fn assert_host_untouched(&self) {
        let names: Vec<_> =
            std::fs::read_dir(&self.host).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
        assert_eq!(std::fs::read_to_string(self.host.join("x")).unwrap(), SECRET);
    }

    /// A file operation on the sandbox, however it ends.
    pub(crate) fn files(&self, method: &str, rest: &str, body: Option<&Value>) -> Answer {
        let answer = self.daemon.http(method, &format!("/v1/sandboxes/box/files/{rest}"), body);
        assert!(answer.status < 500, "{method} {rest}: {} {}", answer.status, answer.text());
        assert!(!answer.text().contains(SECRET), "the secret came out by {method} {rest}");
        answer
    }

    /// Uploads bytes as a stream.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Answer {
        let line = format!("PUT /v1/sandboxes/box/files/content?path={}", quoted(path.as_bytes()));
        let answer =
            unix_raw(&self.daemon.socket(), &line, &["Content-Type: application/octet-stream"], bytes);
        assert!(answer.status < 500, "{line}: {} {}", answer.status, answer.text());
        answer
    }

    /// Starts a command that goes on by itself; gives its run.
    pub(crate) fn start(&self, argv: Value) -> String {
        let run = self.daemon.exec("box", json!({"argv": argv, "wait": "0s"}));
        run["run_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn kill(&self, run: &str) {
        self.daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
    }

    /// Runs a Python program in the sandbox to its end.
    pub(crate) fn python(&self, program: &str) {
        let run = self.daemon.exec("box", json!({"argv": ["python3", "-c", program]}));
        assert_eq!(run["state"], "completed", "{run}");
    }
}

/// Bytes as they stand in a query.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}
