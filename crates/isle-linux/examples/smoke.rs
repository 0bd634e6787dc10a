//! Makes a sandbox, runs a command in it and prints how long each step took.

use std::time::Instant;

use isle_engine::backend::{Backend, Keep, Lifetime, Limits, SandboxSpec, Tier};
use isle_engine::values::SandboxId;
use isle_linux::{NativeBackend, NativeConfig};
use isle_wire::*;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let directory = std::env::temp_dir().join(format!("isle-smoke-{}", std::process::id()));
    let pool_size = std::env::var("POOL").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    let config = NativeConfig { state_dir: directory.join("state"), runtime_dir: directory.join("run"), pool_size };
    let backend = NativeBackend::new(config).await.unwrap();
    let named = std::env::var("NAMED").is_ok();
    let spec = SandboxSpec {
        tier: if std::env::var("PROCESS").is_ok() { Tier::Process } else { Tier::Container },
        image: "host".into(),
        limits: Limits::default(),
        lifetime: if named { Lifetime::Named } else { Lifetime::OneShot },
        volume: named.then(|| "x".parse().unwrap()),
        allow_downgrade: true,
    };
    let rounds: u32 = std::env::var("ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let command: Vec<String> = std::env::args().skip(1).collect();
    for _ in 0..rounds {
        let id = SandboxId::fresh();
        let start = Instant::now();
        let created = match backend.create(&id, &spec).await {
            Ok(created) => created,
            Err(error) => {
                eprintln!("{}", error.to_json());
                return;
            }
        };
        let made = start.elapsed();
        let (mux, _incoming, driver) = Mux::new(created.link, Side::Host);
        tokio::spawn(driver);
        for _ in 0..3 {
            let start = Instant::now();
            let mut stream = mux.open().await.unwrap();
            let request = ExecRequest {
                run: "r".into(),
                argv: command.iter().map(|a| a.as_bytes().to_vec().into()).collect(),
                env: vec![b"PATH=/usr/bin:/bin".to_vec().into(), b"HOME=/home/sandbox".to_vec().into()],
                cwd: b"/workspace".to_vec().into(),
                make_cwd: true,
                user: if std::env::var("AS_ROOT").is_ok() { GuestUser::Root } else { GuestUser::Sandbox },
                stdin: StdinMode::Null,
                terminal: None,
                on_hangup: OnHangup::Kill,
                retain: 65536,
                limits: RunLimits::default(),
                timeout_ms: Some(5000),
                forget: vec![],
            };
            write_message(&mut stream, &Request::Exec(Box::new(request))).await.unwrap();
            loop {
                match read_frame(&mut stream).await.unwrap() {
                    Some(Frame::Stdout(b)) => print!("{}", String::from_utf8_lossy(&b)),
                    Some(Frame::Stderr(b)) => print!("E: {}", String::from_utf8_lossy(&b)),
                    Some(message) => {
                        let event: ExecEvent = message.decode().unwrap();
                        if rounds == 1 { println!("{event:?}") };
                        if matches!(event, ExecEvent::Ended(_) | ExecEvent::Failed(_)) { break }
                    }
                    None => { println!("stream end"); break }
                }
            }
            println!("create {made:?} exec {:?}", start.elapsed());
        }
        let start = Instant::now();
        backend.destroy(&id, Keep::Nothing).await.unwrap();
        println!("destroy {:?}", start.elapsed());
    }
    backend.shutdown(std::time::Duration::from_secs(5)).await;
    std::fs::remove_dir_all(directory).ok();
}
