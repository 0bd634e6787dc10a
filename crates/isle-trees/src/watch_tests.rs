use std::path::Path;

use super::*;

fn watcher(path: &Path) -> TreeWatcher {
    let top = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    TreeWatcher::new(top, true, None).unwrap()
}

fn told(watcher: &mut TreeWatcher) -> Vec<String> {
    let batch = watcher.read().unwrap();
    assert!(!batch.overflow);
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut all = Vec::new();
    for event in batch.events {
        let from = event.from.map(|from| format!("{} ", shown(&from))).unwrap_or_default();
        all.push(format!("{:?} {from}{}", event.what, shown(&event.path)));
    }
    all
}

#[test]
fn changes_of_a_tree_are_reported_in_order() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("old")).unwrap();
    let mut watcher = watcher(place.path());
    assert!(told(&mut watcher).is_empty());
    std::fs::write(at("old/a"), "1").unwrap();
    assert_eq!(told(&mut watcher), ["Created old/a"]);
    std::fs::write(at("old/a"), "2").unwrap();
    assert_eq!(told(&mut watcher), ["Modified old/a"]);
    std::fs::rename(at("old/a"), at("b")).unwrap();
    assert_eq!(told(&mut watcher), ["Moved old/a b"]);
    std::fs::create_dir_all(at("new/er")).unwrap();
    std::fs::write(at("new/er/x"), "x").unwrap();
    assert_eq!(told(&mut watcher), ["Created new", "Created new/er", "Created new/er/x"]);
    std::fs::rename(at("new"), at("moved")).unwrap();
    assert_eq!(told(&mut watcher), ["Moved new moved"]);
    std::fs::remove_file(at("moved/er/x")).unwrap();
    assert_eq!(told(&mut watcher), ["Removed moved/er/x"]);
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::rename(at("moved"), elsewhere.path().join("moved")).unwrap();
    assert_eq!(told(&mut watcher), ["Removed moved"]);
    std::fs::write(elsewhere.path().join("moved/y"), "y").unwrap();
    assert!(told(&mut watcher).is_empty(), "what has left the tree is nobody's business");
}

#[test]
fn removing_the_top_ends_the_watch() {
    let place = tempfile::tempdir().unwrap();
    let top = place.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let mut watcher = watcher(&top);
    std::fs::remove_dir(&top).unwrap();
    assert!(watcher.read().unwrap().ended);
}
