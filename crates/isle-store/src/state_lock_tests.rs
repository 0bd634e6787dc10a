use super::*;

#[test]
fn a_lock_file_records_its_process_and_phase() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(LockState::read(directory.path()).unwrap(), LockState::Free);
    let lock = lock(directory.path()).unwrap();
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"/run/\xff.sock"));
    lock.announce(Phase::Running, None, Some(odd)).unwrap();
    let LockState::HeldBy(holder) = LockState::read(directory.path()).unwrap() else { panic!("not held") };
    assert_eq!((holder.pid, holder.phase), (std::process::id(), Phase::Running));
    assert_eq!((holder.socket.as_deref(), holder.process()), (Some(odd), Some(std::process::id())));
    // A number that means another process here is not taken for it.
    assert_eq!(LockHolder { start_ticks: 1, ..(*holder).clone() }.process(), None);
    assert_eq!(LockHolder { pid_namespace: 1, ..(*holder).clone() }.process(), None);
    assert!(!LockHolder { start_ticks: 1, pid_namespace: 1, ..*holder }.is_gone(), "that cannot be known");
    drop(lock);
    assert_eq!(LockState::read(directory.path()).unwrap(), LockState::Free);
    assert!(LockHolder::last(directory.path()).is_some());
}

#[test]
fn an_incomplete_record_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let held = lock(directory.path()).unwrap();
    let path = directory.path().join(LOCK_FILE);
    let text = fs::read_to_string(&path).unwrap();
    for bad in ["", "{}\n0\n", &text[..text.len() / 2], &text.replacen("starting", "stopping", 1)] {
        fs::write(&path, bad).unwrap();
        assert_eq!(LockState::read(directory.path()).unwrap(), LockState::Unknown { pid: None }, "{bad}");
    }
    fs::write(&path, "17\n").unwrap();
    assert_eq!(LockState::read(directory.path()).unwrap(), LockState::Unknown { pid: Some(17) });
    drop(held);
}
