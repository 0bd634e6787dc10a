//! One client: works through its plan, and compares every answer with its models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::ground::{Told, told};
use crate::harness::http::try_unix;
use crate::harness::until_some;
use crate::model::{Model, Sure};
use crate::plan::{NAMES, Operation, operation};

/// Refusals that any call may get while things go wrong, and that say that nothing was begun.
const NOT_BEGUN: [&str; 4] = ["NO_SPACE", "BUSY", "LIMIT_REACHED", "DAEMON_UNAVAILABLE"];
/// Refusals after which it is not known how far it came.
const SOMEWHERE: [&str; 3] = ["SANDBOX_FAILED", "INTERNAL", "DISK_BROKEN"];

#[derive(Debug)]
pub(crate) struct Client {
    seed: u64,
    number: u64,
    /// Whose tenant it is; `None`: nobody's.
    namespace: Option<String>,
    socket: PathBuf,
    models: BTreeMap<u64, Model>,
    index: u64,
    acknowledged: u64,
    /// What was asked and answered, for whoever has to find out what went wrong.
    history: Vec<String>,
}

impl Client {
    pub(crate) fn new(seed: u64, number: u64, socket: &Path) -> Self {
        let models = (0..NAMES).map(|name| (name, Model::default())).collect();
        Self {
            seed,
            number,
            namespace: number.is_multiple_of(3).then(|| format!("tenant{number}")),
            socket: socket.to_owned(),
            models,
            index: 0,
            acknowledged: 0,
            history: Vec::new(),
        }
    }

    pub(crate) fn done(&self) -> u64 {
        self.index
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Its names, when they are in the namespace everybody is in.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let (number, names) = (self.number, if self.namespace.is_some() { 0 } else { NAMES });
        (0..names).map(move |name| format!("c{number}n{name}"))
    }

    fn name(&self, name: u64) -> String {
        format!("c{}n{name}", self.number)
    }

    /// Does what is planned until told to stop.
    pub(crate) fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let operation = operation(self.seed, self.number, self.index);
            self.index += 1;
            self.perform(&operation);
        }
    }

    /// One request; a daemon that is away for the moment is waited for afterwards.
    fn ask(&mut self, line: &str, body: Option<Value>) -> Told {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let namespace = format!("Isle-Namespace: {}", self.namespace.as_deref().unwrap_or("default"));
        let headers = ["Content-Type: application/json", namespace.as_str()];
        let answer = told(try_unix(&self.socket, line, &headers, body.as_bytes()));
        let short = match &answer {
            Told::Done(answer) => answer.chars().take(100).collect(),
            Told::Refused(code) => code.clone(),
            Told::Nothing => "nothing".to_owned(),
        };
        self.history.push(format!("{} {line} {body:.60} → {short}", self.index));
        match &answer {
            Told::Done(_) => self.acknowledged += 1,
            Told::Refused(code) => {
                let known = NOT_BEGUN.contains(&code.as_str())
                    || SOMEWHERE.contains(&code.as_str())
                    || matches!(
                        code.as_str(),
                        "SANDBOX_NOT_FOUND" | "FILE_NOT_FOUND" | "RUN_FINISHED" | "EXPIRED" | "PAUSED"
                    );
                assert!(known, "{line}: {code}");
            }
            Told::Nothing => {
                let socket = self.socket.clone();
                until_some("the daemon is back", || {
                    std::os::unix::net::UnixStream::connect(&socket).ok().or_else(|| {
                        std::thread::sleep(Duration::from_millis(20));
                        None
                    })
                });
            }
        }
        answer
    }

    fn perform(&mut self, operation: &Operation) {
        match *operation {
            Operation::Append { name } => self.append(name),
            Operation::Write { name } => self.write(name),
            Operation::Look { name } => self.look(name),
            Operation::Remove { name } => self.remove(name),
            Operation::Create { name } => self.create(name),
            Operation::Destroy { name } => self.destroy(name),
            Operation::Wipe { name } => self.wipe(name),
            Operation::StartAndKill { name } => self.start_and_kill(name),
            Operation::StartAndWait { name, lines } => self.start_and_wait(name, lines),
            Operation::TimeOut { name } => self.time_out(name),
            Operation::OneShot { lines } => self.one_shot(lines),
            Operation::PauseAndResume { name } => self.pause_and_resume(name),
            Operation::Brief { number } => self.brief(number),
            Operation::Family { name, ends } => self.family(name, ends),
            Operation::Reset { name, wipe } => self.reset(name, wipe),
            Operation::Cross => self.cross(),
            Operation::Browse => self.browse(),
        }
    }

    fn model(&mut self, name: u64) -> &mut Model {
        self.models.entry(name).or_default()
    }

    /// Runs a command in a sandbox, which makes it.
    fn exec(&mut self, name: u64, body: Value) -> Told {
        let line = format!("POST /v1/sandboxes/{}/exec", self.name(name));
        let told = self.ask(&line, Some(body));
        self.model(name).exists = match &told {
            Told::Done(_) => Some(true),
            Told::Refused(_) | Told::Nothing => None,
        };
        told
    }

    fn append(&mut self, name: u64) {
        let number = self.index;
        self.model(name).appended(number, Sure::Maybe);
        let told = self.exec(name, json!({"command": format!("echo {number} >> said")}));
        match told {
            Told::Done(answer) => match state(&answer).as_str() {
                "completed" => self.model(name).appended(number, Sure::Yes),
                "lost" | "killed" => {}
                other => panic!("{}: {other}: {answer}", self.name(name)),
            },
            Told::Refused(code) if NOT_BEGUN.contains(&code.as_str()) => {
                self.model(name).not_appended(number)
            }
            Told::Refused(_) | Told::Nothing => {}
        }
    }

    fn write(&mut self, name: u64) {
        let number = self.index;
        let content = number.to_string();
        let files = json!([{"path": "first", "content": content}, {"path": "second", "content": content}]);
        let line = format!("POST /v1/sandboxes/{}/files/write", self.name(name));
        let told = self.ask(&line, Some(json!({"files": files})));
        let done = matches!(told, Told::Done(_));
        let model = self.model(name);
        model.written(number, if done { Sure::Yes } else { Sure::Maybe });
        model.exists = done.then_some(true);
    }

    /// Reads everything back, when the daemon lets us.
    fn look(&mut self, name: u64) {
        let text = "cat said 2>/dev/null; echo =; [ -e first ] && cat first; echo; echo =; [ -e second ] && cat second; true";
        let Told::Done(answer) = self.exec(name, json!({"command": text, "output_limit": "1M"})) else {
            return;
        };
        if state(&answer) != "completed" {
            return;
        }
        let run: Value = serde_json::from_str(&answer).unwrap();
        let stdout = run["stdout"].as_str().unwrap();
        let mut parts = stdout.split("=\n");
        let said = parts.next().unwrap_or_default().to_owned();
        let file =
            |text: Option<&str>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let (first, second) = (file(parts.next()), file(parts.next()));
        let label = self.name(name);
        let compared = self.model(name).compare(&said, first.as_deref(), second.as_deref());
        if let Err(why) = compared {
            let history: Vec<&String> = self.history.iter().filter(|line| line.contains(&label)).collect();
            panic!("{label}: {why}\n{stdout}\n{history:#?}");
        }
    }

    fn remove(&mut self, name: u64) {
        let line = format!("POST /v1/sandboxes/{}/files/remove", self.name(name));
        match self.ask(&line, Some(json!({"path": "first"}))) {
            Told::Done(_) => self.model(name).removed(Sure::Yes),
            Told::Refused(code) if code == "FILE_NOT_FOUND" || code == "SANDBOX_NOT_FOUND" => {}
            Told::Refused(_) | Told::Nothing => self.model(name).removed(Sure::Maybe),
        }
    }

    fn create(&mut self, name: u64) {
        let body = json!({"sandbox": self.name(name)});
        let told = self.ask("POST /v1/sandboxes", Some(body));
        self.model(name).exists = matches!(told, Told::Done(_)).then_some(true);
    }

    fn destroy(&mut self, name: u64) {
        let line = format!("DELETE /v1/sandboxes/{}", self.name(name));
        let label = self.name(name);
        match self.ask(&line, None) {
            Told::Done(_) => self.model(name).exists = Some(false),
            Told::Refused(code) if code == "SANDBOX_NOT_FOUND" => {
                let model = self.model(name);
                assert_ne!(model.exists, Some(true), "{label} was acknowledged and is lost");
                model.exists = Some(false);
            }
            Told::Refused(_) | Told::Nothing => self.model(name).exists = None,
        }
    }

    fn wipe(&mut self, name: u64) {
        let line = format!("DELETE /v1/sandboxes/{}", self.name(name));
        match self.ask(&line, Some(json!({"wipe": true}))) {
            Told::Done(_) => self.model(name).wiped(Sure::Yes),
            // There is nothing of it at all.
            Told::Refused(code) if code == "SANDBOX_NOT_FOUND" => {
                let label = self.name(name);
                let compared = self.model(name).compare("", None, None);
                assert_eq!(compared, Ok(()), "{label} is gone with its workspace");
                self.model(name).exists = Some(false);
            }
            Told::Refused(_) | Told::Nothing => self.model(name).wiped(Sure::Maybe),
        }
    }

    fn start(&mut self, name: u64, command: &str) -> Option<String> {
        let Told::Done(answer) = self.exec(name, json!({"command": command, "wait": "0s"})) else {
            return None;
        };
        let run: Value = serde_json::from_str(&answer).unwrap();
        Some(run["run_id"].as_str().unwrap().to_owned())
    }

    fn start_and_kill(&mut self, name: u64) {
        let Some(run) = self.start(name, "sleep 600") else { return };
        // Whatever happens in between: at the end it has ended.
        for _ in 0..100 {
            match self.ask(&format!("POST /v1/runs/{run}/kill"), Some(json!({"force": true}))) {
                Told::Done(_) => return,
                Told::Refused(code) if code == "RUN_FINISHED" => return,
                Told::Refused(_) | Told::Nothing => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("{}: {run} could not be ended", self.name(name));
    }

    fn start_and_wait(&mut self, name: u64, lines: u64) {
        let Some(run) = self.start(name, &format!("seq 1 {lines}")) else { return };
        let expected: u64 = (1..=lines).map(|line| line.to_string().len() as u64 + 1).sum();
        let body = json!({"timeout": "60s"});
        if let Told::Done(answer) = self.ask(&format!("POST /v1/runs/{run}/wait"), Some(body)) {
            let ended: Value = serde_json::from_str(&answer).unwrap();
            match ended["state"].as_str().unwrap() {
                "completed" => assert_eq!(ended["stdout_bytes"], expected, "{ended}"),
                "lost" => {}
                _ => panic!("{}: {ended}", self.name(name)),
            }
        }
    }

    fn time_out(&mut self, name: u64) {
        if let Told::Done(answer) = self.exec(name, json!({"command": "sleep 600", "timeout": "200ms"})) {
            assert!(matches!(state(&answer).as_str(), "timed_out" | "lost"), "{answer}");
        }
    }

    fn one_shot(&mut self, lines: u64) {
        let told = self.ask("POST /v1/runs", Some(json!({"command": format!("seq 1 {lines}; exit 3")})));
        if let Told::Done(answer) = told {
            let run: Value = serde_json::from_str(&answer).unwrap();
            let fits = run["state"] == "failed" && run["exit_code"] == 3 || run["state"] == "lost";
            assert!(fits, "{run}");
        }
    }

    fn pause_and_resume(&mut self, name: u64) {
        let label = self.name(name);
        self.ask(&format!("POST /v1/sandboxes/{label}/pause"), Some(json!({})));
        // Whatever became of that: at the end it runs, or is not there, or has died and is built anew.
        for _ in 0..100 {
            match self.ask(&format!("POST /v1/sandboxes/{label}/resume"), Some(json!({}))) {
                Told::Done(_) => return,
                Told::Refused(code) if code == "SANDBOX_NOT_FOUND" || code == "SANDBOX_FAILED" => return,
                Told::Refused(_) | Told::Nothing => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("{label} could not be resumed");
    }

    /// Whether it has ended by itself, is about to, or was never made: its name can be wiped.
    fn brief(&mut self, number: u64) {
        let label = format!("c{}b{number}", self.number);
        self.ask("POST /v1/sandboxes", Some(json!({"sandbox": label, "ttl": "1s"})));
        self.ask(&format!("POST /v1/sandboxes/{label}/extend"), Some(json!({"by": "1s"})));
        std::thread::sleep(Duration::from_millis(number * 137 % 2_500));
        for _ in 0..100 {
            match self.ask(&format!("DELETE /v1/sandboxes/{label}"), Some(json!({"wipe": true}))) {
                Told::Done(_) => return,
                Told::Refused(code) if code == "SANDBOX_NOT_FOUND" => return,
                Told::Refused(_) | Told::Nothing => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("{label} could not be wiped");
    }

    /// A child works as long as it is there, and goes with its parent at the latest.
    fn family(&mut self, name: u64, ends: bool) {
        let (parent, child) = (self.name(name), format!("c{}k{}", self.number, self.index));
        self.exec(name, json!({"command": "true"}));
        let wish = json!({"name": child, "memory": "64M"});
        self.ask(&format!("POST /v1/sandboxes/{parent}/children"), Some(wish));
        let body = json!({"command": "echo $((40 + 2)); ls -A"});
        // A name that no spawn made would be a sandbox like any other: only one that is listed is used.
        if let Told::Done(listed) = self.ask(&format!("GET /v1/sandboxes/{parent}/children"), None)
            && listed.contains(&format!("\"{parent}/{child}\""))
            && let Told::Done(answer) =
                self.ask(&format!("POST /v1/sandboxes/{parent}%2F{child}/exec"), Some(body))
        {
            let run: Value = serde_json::from_str(&answer).unwrap();
            let fits = run["state"] == "completed" && run["stdout"] == "42\n";
            assert!(fits || run["state"] == "lost" || run["state"] == "killed", "{child}: {run}");
        }
        if ends {
            self.ask(&format!("DELETE /v1/children/{parent}%2F{child}"), None);
        }
    }

    fn reset(&mut self, name: u64, wipe: bool) {
        let line = format!("POST /v1/sandboxes/{}/reset", self.name(name));
        let told = self.ask(&line, Some(json!({"wipe": wipe})));
        let model = self.model(name);
        match (told, wipe) {
            (Told::Done(_), true) => {
                model.wiped(Sure::Yes);
                model.exists = Some(true);
            }
            (Told::Done(_), false) => model.exists = Some(true),
            (Told::Refused(code), _) if code == "SANDBOX_NOT_FOUND" => {}
            (Told::Refused(_) | Told::Nothing, true) => model.wiped(Sure::Maybe),
            (Told::Refused(_) | Told::Nothing, false) => model.exists = None,
        }
    }

    /// What belongs to others is not there.
    fn cross(&mut self) {
        let others = if self.namespace.is_some() { "c1n0" } else { "c0n0" };
        let told = self.ask(&format!("GET /v1/status?sandbox={others}"), None);
        assert!(!matches!(told, Told::Done(_)), "a sandbox of another namespace was shown: {told:?}");
    }

    /// Leaves nothing of a tenant.
    pub(crate) fn leave(&mut self) {
        if self.namespace.is_none() {
            return;
        }
        for name in 0..NAMES {
            let told =
                self.ask(&format!("DELETE /v1/sandboxes/{}", self.name(name)), Some(json!({"wipe": true})));
            let gone = match &told {
                Told::Done(_) => true,
                Told::Refused(code) => code == "SANDBOX_NOT_FOUND",
                Told::Nothing => false,
            };
            assert!(gone, "{told:?}");
        }
    }

    fn browse(&mut self) {
        for path in ["/v1/sandboxes", "/v1/runs?limit=20", "/v1/audit?limit=20", "/v1/health", "/v1/status"] {
            self.ask(&format!("GET {path}"), None);
        }
    }

    /// Compares everything once more, with nobody in the way.
    pub(crate) fn check_all(&mut self) {
        for name in 0..NAMES {
            let known = self.model(name).exists;
            let label = self.name(name);
            let listed = match self.ask(&format!("GET /v1/status?sandbox={label}"), None) {
                Told::Done(_) => true,
                Told::Refused(code) => {
                    assert_eq!(code, "SANDBOX_NOT_FOUND", "{label}");
                    false
                }
                Told::Nothing => panic!("the daemon hung up"),
            };
            assert!(
                known.is_none_or(|known| known == listed),
                "{label}: {known:?} was acknowledged, now {listed}"
            );
            self.look(name);
        }
    }
}

fn state(answer: &str) -> String {
    let run: Value = serde_json::from_str(answer).unwrap();
    run["state"].as_str().unwrap().to_owned()
}
