use super::*;

#[test]
fn an_identity_stays_with_its_directory_and_not_with_a_copy() {
    let root = tempfile::tempdir().unwrap();
    let (one, two, three) = (root.path().join("one"), root.path().join("two"), root.path().join("three"));
    fs::create_dir(&one).unwrap();
    assert_eq!(Instance::current(&one).unwrap(), None);
    let made = Instance::load(&one, false, None).unwrap();
    assert_eq!(Instance::current(&one).unwrap().as_ref(), Some(&made));
    assert_eq!(Instance::load(&one, false, None).unwrap(), made);
    assert_eq!((made.vault.as_str(), made.adopted), (made.id.as_str(), false));
    fs::create_dir(&two).unwrap();
    fs::copy(one.join(FILE), two.join(FILE)).unwrap();
    assert_eq!(Instance::current(&two).unwrap(), None, "what a copy says is not true of it");
    let copy = Instance::load(&two, false, None).unwrap();
    assert_ne!(copy.id, made.id);
    assert_eq!((copy.previous, copy.vault), (Some(made.id.clone()), made.vault.clone()));
    fs::rename(&one, &three).unwrap();
    assert_eq!(Instance::load(&three, false, None).unwrap(), made, "a rename is no copy");
}

#[test]
fn a_reboot_that_numbers_devices_differently_changes_no_identity() {
    let root = tempfile::tempdir().unwrap();
    let made = Instance::load(root.path(), false, None).unwrap();
    if made.born.is_none() {
        isle_e2e::skip!("the file system here does not say when a directory was made");
    }
    let before = Instance { device: made.device + 1, boot: Some("an earlier one".into()), ..made.clone() };
    before.write(&root.path().join(FILE)).unwrap();
    assert_eq!(Instance::current(root.path()).unwrap().map(|known| known.id), Some(made.id.clone()));
    assert_eq!(Instance::load(root.path(), false, None).unwrap(), made);
    // Within one boot another device is another file system, a snapshot say.
    let other = Instance { device: made.device + 1, ..made.clone() };
    other.write(&root.path().join(FILE)).unwrap();
    assert_ne!(Instance::load(root.path(), false, None).unwrap().id, made.id);
    // And so it is after a reboot, when the directory was made at another time.
    let copy = Instance { born: made.born.map(|born| born + 1), ..before };
    copy.write(&root.path().join(FILE)).unwrap();
    assert_ne!(Instance::load(root.path(), false, None).unwrap().id, made.id);
}

#[test]
fn an_older_state_keeps_the_name_of_its_key() {
    let root = tempfile::tempdir().unwrap();
    let made = Instance::load(root.path(), true, None).unwrap();
    assert!(made.adopted);
    assert_eq!(made.vault, root.path().to_str().unwrap());
}

#[test]
fn a_damaged_identity_is_reported_and_kept() {
    let root = tempfile::tempdir().unwrap();
    for bad in ["", "{}", "{\"id\":\"../../x\",\"device\":1,\"inode\":1,\"vault\":\"\"}"] {
        fs::write(root.path().join(FILE), bad).unwrap();
        assert!(
            matches!(Instance::load(root.path(), false, None), Err(StoreError::Identity { .. })),
            "{bad}"
        );
        assert_eq!(fs::read_to_string(root.path().join(FILE)).unwrap(), bad);
    }
}

#[test]
fn a_lost_identity_is_restored_from_a_record_of_the_same_directory() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    let made = Instance::load(&one, false, None).unwrap();
    fs::remove_file(one.join(FILE)).unwrap();
    assert_eq!(Instance::load(&one, false, Some(made.clone())).unwrap(), made);
    fs::write(one.join(FILE), "").unwrap();
    assert_eq!(Instance::load(&one, false, Some(made.clone())).unwrap(), made);
    // A copy has the record of its original, which is not its own.
    assert_ne!(Instance::load(&two, false, Some(made.clone())).unwrap().id, made.id);
    fs::write(two.join(FILE), "").unwrap();
    assert!(matches!(Instance::load(&two, false, Some(made)), Err(StoreError::Identity { .. })));
}
