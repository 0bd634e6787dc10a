//! The host's file operations: they mean the sandbox's own directories and cannot be led out of them.

use isle_core::backend::Keep;
use isle_wire::{
    FailureKind, FileKind, ListRequest, PathRequest, ReadRequest, RemoveRequest, Reply, Request, Stat,
};

use crate::house::{Guest, House, absolute, below_workspace};

async fn stat(guest: &Guest, at: PathRequest) -> Result<Stat, FailureKind> {
    match guest.ask(&Request::Stat(at)).await {
        Reply::Stat(stat) => Ok(stat),
        Reply::Failed(failure) => Err(failure.kind),
        other => panic!("{other:?}"),
    }
}

/// Opens a file for reading, as far as the first answer.
async fn read(guest: &Guest, at: PathRequest) -> Result<Stat, FailureKind> {
    match guest.ask(&Request::ReadFile(ReadRequest { at, offset: 0, limit: None })).await {
        Reply::Stat(stat) => Ok(stat),
        Reply::Failed(failure) => Err(failure.kind),
        other => panic!("{other:?}"),
    }
}

fn failed(reply: &Reply) -> FailureKind {
    match reply {
        Reply::Failed(failure) => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn paths_of_the_sandbox_mean_its_own_directories() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    for path in ["/workspace/a/b", "/home/sandbox/b", "/tmp/b"] {
        assert!(matches!(guest.write(absolute(path), b"hello").await, Reply::Written(_)), "{path}");
        let found = read(&guest, absolute(path)).await.unwrap();
        assert_eq!((found.size, found.uid, found.kind), (5, 1000, FileKind::File));
    }
    assert!(matches!(guest.write(below_workspace("c"), b"hi").await, Reply::Written(_)));
    let outcome = guest.shell("cat a/b ~/b $TMPDIR/b c").await;
    assert_eq!(outcome.stdout, "hellohellohellohi");
    let listing = guest
        .ask(&Request::List(ListRequest { at: absolute("/workspace"), depth: 2, limit: 10, glob: None }))
        .await;
    let Reply::Listing(listing) = listing else { panic!("{listing:?}") };
    let names: Vec<_> =
        listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(names, ["a", "a/b", "c"]);
    let removed = guest
        .ask(&Request::Remove(RemoveRequest {
            at: absolute("/workspace/a"),
            recursive: true,
            contents: false,
        }))
        .await;
    assert!(matches!(removed, Reply::Done));
    assert_eq!(stat(&guest, below_workspace("a")).await.unwrap_err(), FailureKind::NotFound);
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn file_operations_cannot_be_led_out_by_links() {
    let house = House::new().await;
    let canary = house.canary();
    let guest = house.one_shot().await;
    let (file, directory) = (canary.display().to_string(), house.directory.display().to_string());
    let made = guest
        .shell(&format!(
            "ln -s {file} file; ln -s {directory} directory; ln -s /proc/1/cmdline process; ln -s /proc proc; ln -s ../../.. up"
        ))
        .await;
    assert_eq!(made.stderr, "");
    for path in [
        "file",
        "directory/canary",
        "process",
        "proc/1/cmdline",
        "proc/self/root/etc/passwd",
        "up/etc/passwd",
    ] {
        assert_eq!(read(&guest, below_workspace(path)).await.unwrap_err(), FailureKind::Escapes, "{path}");
        let kind = read(&guest, absolute(&format!("/workspace/{path}"))).await.unwrap_err();
        assert!(
            matches!(kind, FailureKind::Denied | FailureKind::Escapes | FailureKind::NotFound),
            "{path}: {kind:?}"
        );
    }
    assert_eq!(read(&guest, absolute("/etc/shadow")).await.unwrap_err(), FailureKind::Denied);
    assert_eq!(read(&guest, absolute("/proc/1/cmdline")).await.unwrap_err(), FailureKind::Escapes);
    for path in ["file", "directory/made", "directory/canary"] {
        assert_eq!(failed(&guest.write(below_workspace(path), b"x").await), FailureKind::Escapes, "{path}");
        let kind = failed(&guest.write(absolute(&format!("/workspace/{path}")), b"x").await);
        assert!(matches!(kind, FailureKind::Denied | FailureKind::Escapes), "{path}: {kind:?}");
    }
    let at = absolute("/workspace/directory/canary");
    let kind =
        failed(&guest.ask(&Request::Remove(RemoveRequest { at, recursive: true, contents: false })).await);
    assert_eq!(kind, FailureKind::Denied);
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "canary");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused_and_the_agent_lives() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let kind = failed(&guest.write(below_workspace("big"), &vec![0; 17 << 20]).await);
    assert_eq!(kind, FailureKind::NoSpace);
    assert_eq!(guest.shell("ls -A").await.stdout, "");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}
