//! Converts the message that starts a command to a request to the engine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_api::session::{OneShotSpec, PlacedFile, StartRequest, StartTarget};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};
use isle_engine::engine::{Command, OneShot, OpenExec, Target};
use isle_engine::sandbox::Settings;
use isle_wire::TerminalSize;

use crate::routes::parse_user;

/// The request to the engine; validates what serde does not.
pub(super) fn open_exec(request: StartRequest) -> Result<OpenExec> {
    let command = match (request.command, request.argv, request.code) {
        (Some(text), None, None) => Command::Shell(text),
        (None, Some(argv), None) => Command::Argv(argv),
        (None, None, Some(code)) => Command::Code { language: code.language, code: code.code },
        _ => {
            return Err(Error::new(
                Code::InvalidArgument,
                "exactly one of `command`, `argv` and `code` is required",
            )
            .next("pass one of them"));
        }
    };
    let target = match request.target {
        StartTarget::Sandbox(name) => Target::Named(name),
        StartTarget::OneShot(spec) => Target::OneShot(one_shot(spec)?),
    };
    Ok(OpenExec {
        target,
        command,
        cwd: request.cwd.as_deref().map(GuestPath::parse_absolute).transpose()?,
        env: request.env.into_iter().collect(),
        user: parse_user(request.user.as_deref())?,
        timeout: request.timeout,
        limits: request.limits,
        allow_downgrade: request.allow_downgrade,
        backend: request.backend,
        profile: request.profile,
        lock: request.lock,
        allow: request.allow,
        secrets: request.secrets,
        expose_secrets: request.expose_secrets,
        terminal: request.terminal.map(TerminalSize::from),
        stdin: request.stdin,
    })
}
fn one_shot(spec: OneShotSpec) -> Result<OneShot> {
    let files = spec.files.into_iter().map(decoded).collect::<Result<_>>()?;
    let settings = Settings {
        backend: spec.backend,
        tier: spec.tier,
        image: spec.image,
        memory: spec.memory,
        cpus: spec.cpus,
        pids: spec.pids,
        disk: spec.disk,
        allow_downgrade: spec.allow_downgrade,
        ..Settings::default()
    };
    Ok(OneShot { settings, files })
}

fn decoded(file: PlacedFile) -> Result<(GuestPath, Bytes)> {
    match STANDARD.decode(&file.content_base64) {
        Ok(content) => Ok((file.path, content.into())),
        Err(error) => Err(Error::new(
            Code::InvalidArgument,
            format!("content of {} is not valid base64: {error}", file.path),
        )
        .next("use standard base64 with padding")),
    }
}

#[cfg(test)]
mod tests {
    use isle_api::session::FirstMessage;
    use isle_core::values::{ByteSize, Span};
    use serde_json::{Value, json};

    use super::*;

    fn open(value: Value) -> Result<OpenExec> {
        match FirstMessage::read(json!({ "start": value }))? {
            FirstMessage::Start(request) => open_exec(*request),
            FirstMessage::Attach(request) => Err(Error::internal(format!("attach to {}", request.run))),
        }
    }

    #[test]
    fn a_one_shot_carries_its_files_and_limits() {
        let request = open(json!({
            "target": {"one_shot": {"memory": "64M", "files": [{"path": "a", "content_base64": "aGk="}]}},
            "argv": ["cat", "a"], "env": {"A": "1"}, "cwd": "/tmp", "timeout": "5s", "stdin": true,
            "terminal": {"rows": 3, "columns": 4}, "user": "root"
        }))
        .unwrap();
        let Target::OneShot(one_shot) = request.target else { panic!("not a one-shot") };
        assert_eq!(one_shot.settings.memory, Some(ByteSize::mib(64)));
        assert_eq!(&one_shot.files[0].1[..], b"hi");
        assert_eq!(request.env, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(request.timeout, Some(Span::seconds(5)));
    }

    #[test]
    fn both_neither_or_unknown_is_refused() {
        let target = json!({"sandbox": "a"});
        assert!(open(json!({"target": target})).is_err());
        assert!(open(json!({"target": target, "command": "a", "argv": ["a"]})).is_err());
        assert!(open(json!({"target": target, "command": "a", "colour": 1})).is_err());
        assert!(open(json!({"target": target, "command": "a", "cwd": "relative"})).is_err());
        assert!(open(json!({"target": {"sandbox": "../a"}, "command": "a"})).is_err());
        assert!(open(json!({"target": target, "command": "a"})).is_ok());
    }
}
