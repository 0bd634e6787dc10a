//! The driver: every operation once for every point it passes, and at that point the daemon dies, or
//! is told that the step it has just taken failed. Then it is started again, and the model must hold.

use std::collections::{BTreeMap, BTreeSet};

use isle_fail::{Can, Point};

use crate::ground::{Action, Ground, Told, is_passed_here};
use crate::harness::{part, require, until};
use crate::recovery;
use crate::scenes::{self, SCENES, Scene};

/// How often one operation may pass one point and have each time tried. As an ordinary user the same
/// code is passed once more, so once is enough there.
fn most() -> usize {
    if rustix::process::geteuid().is_root() { 8 } else { 1 }
}

/// The point of a name.
pub(crate) fn point(name: &str) -> Point {
    let found = Point::ALL.iter().find(|point| point.name() == name);
    *found.unwrap_or_else(|| panic!("{name} is no failpoint"))
}

/// What can be done at a point.
pub(crate) fn actions(point: Point) -> &'static [Action] {
    match (point, point.can()) {
        (Point::StoreBegins, _) => &[Action::Die, Action::Fail, Action::Full],
        (_, Can::Fail) => &[Action::Die, Action::Fail],
        (_, Can::Die) => &[Action::Die],
    }
}

/// Plays a scene undisturbed and counts what it passes.
fn rehearse(scene: &Scene, ground: &mut Ground) -> BTreeMap<String, usize> {
    (scene.prepare)(ground);
    ground.forget_passed();
    let told = (scene.act)(ground);
    assert!(matches!(told, Told::Done(_)), "{}: {told:?}", scene.name);
    until("it has passed its last point", || ground.passed().iter().any(|name| name == scene.last.name()));
    let mut counts = BTreeMap::new();
    for name in ground.passed() {
        *counts.entry(name).or_default() += 1;
    }
    (scene.settle)(ground);
    (scene.check)(ground, &told);
    ground.restart();
    ground.check(scene.keeps);
    ground.clear();
    counts
}

/// Plays a scene with a fault at one point.
fn play(scene: &Scene, ground: &mut Ground, point: Point, action: Action, number: usize) {
    println!("{}: {action:?} at {} ({number})", scene.name, point.name());
    (scene.prepare)(ground);
    ground.arm(point.name(), action, number);
    let told = (scene.act)(ground);
    until("the point is passed", || ground.has_fired());
    match action {
        Action::Die => {
            ground.daemon.died();
            ground.daemon.launch();
        }
        Action::Fail | Action::Full => {
            // The daemon goes on and serves; then it is killed like any other.
            assert_ne!(told, Told::Nothing, "an error is no reason to hang up");
            assert_eq!(ground.daemon.get("/v1/health")["status"], "ok");
            ground.restart();
        }
    }
    (scene.settle)(ground);
    ground.check(scene.keeps);
    (scene.check)(ground, &told);
    ground.clear();
}

/// Plays a scene with every fault at every point it passes.
fn play_all(scene: &Scene) {
    play_some(scene, |_| true);
}

/// The same with those points only.
fn play_some(scene: &Scene, wanted: impl Fn(&str) -> bool) {
    require!(scene.needs_its_tier());
    let mut ground = Ground::new();
    let counts = rehearse(scene, &mut ground);
    for (name, count) in counts.into_iter().filter(|(name, _)| wanted(name)) {
        let point = point(&name);
        for action in actions(point) {
            for number in 1..=count.min(most()) {
                play(scene, &mut ground, point, *action, number);
            }
        }
    }
}

#[test]
fn every_failpoint_is_passed_by_the_fault_tests() {
    let mut ground = Ground::new();
    let mut passed: BTreeSet<String> = BTreeSet::new();
    // Starting the fork server is part of the first scene only.
    passed.extend(ground.passed());
    for scene in SCENES.iter().filter(|scene| part(scene.needs_its_tier())) {
        passed.extend(rehearse(scene, &mut ground).into_keys());
    }
    drop(ground);
    passed.extend(recovery::rehearse().into_keys());
    passed.extend(recovery::rehearse_adoption().into_keys());
    let expected: BTreeSet<String> = Point::ALL
        .iter()
        .filter(|point| is_passed_here(**point))
        .map(|point| point.name().to_owned())
        .collect();
    let missed: Vec<&String> = expected.difference(&passed).collect();
    assert!(missed.is_empty(), "never passed: {missed:?}");
    let strange: Vec<&String> = passed.difference(&expected).collect();
    assert!(strange.is_empty(), "passed where nobody expects it: {strange:?}");
}

#[test]
fn a_fault_at_any_point_of_a_create_leaves_a_whole_sandbox_or_none() {
    play_all(&scenes::CREATE);
}

#[test]
fn a_fault_at_any_point_of_a_create_in_tier_process_leaves_a_whole_sandbox_or_none() {
    play_all(&scenes::CREATE_PROCESS);
}

#[test]
fn a_fault_at_any_point_of_an_exec_runs_it_once_or_not_at_all() {
    play_all(&scenes::EXEC);
}

#[test]
fn a_fault_at_any_point_of_a_turn_runs_it_once_or_not_at_all_and_says_which() {
    play_all(&scenes::TURN);
}

#[test]
fn a_fault_while_a_job_is_written_to_or_looked_at_leaves_it_going_on() {
    play_all(&scenes::INPUT);
    play_all(&scenes::ATTACH);
}

#[test]
fn a_fault_at_any_point_of_a_one_shot_leaves_nothing_of_it() {
    play_all(&scenes::ONE_SHOT);
}

#[test]
fn a_fault_at_any_point_of_a_one_shot_in_tier_process_leaves_nothing_of_it() {
    play_all(&scenes::ONE_SHOT_PROCESS);
}

#[test]
fn a_fault_at_any_point_of_a_write_leaves_all_files_old_or_all_new() {
    play_all(&scenes::WRITE);
    play_all(&scenes::REMOVE);
}

#[test]
fn a_fault_at_any_point_of_an_edit_or_a_move_leaves_the_file_old_or_new() {
    play_all(&scenes::EDIT);
    play_all(&scenes::MOVE);
    play_all(&scenes::PRUNE);
}

#[test]
fn a_fault_at_any_point_of_a_copy_leaves_a_whole_tree_or_none() {
    play_all(&scenes::UNPACK);
    play_all(&scenes::COPY_OUT);
    play_all(&scenes::SYNC);
}

#[test]
fn a_fault_at_any_point_of_a_push_or_a_pull_is_made_good_by_doing_it_again() {
    play_all(&scenes::PUSH);
    play_all(&scenes::PULL);
    // The rest is tried by the scene before.
    play_some(&scenes::PULL_NEW, |name| name.starts_with("pull."));
}

#[test]
fn a_fault_at_any_point_of_keeping_what_a_job_prints_leaves_the_job_going_on_and_its_files_whole() {
    play_some(&scenes::JOB_FILES, |name| name.starts_with("spool."));
    play_some(&scenes::JOB_FILES_SWEPT, |name| name.starts_with("spool."));
}

#[test]
fn a_fault_at_any_point_of_a_destroy_keeps_the_workspace() {
    play_all(&scenes::DESTROY);
}

#[test]
fn a_fault_at_any_point_of_a_wipe_leaves_a_whole_workspace_or_none() {
    play_all(&scenes::WIPE);
    play_all(&scenes::WIPE_KEPT);
}

#[test]
fn a_fault_at_any_point_of_a_reset_keeps_workspace_caches_and_settings() {
    play_all(&scenes::RESET);
    play_all(&scenes::RESET_EMPTIED);
}

#[test]
fn a_fault_at_any_point_of_setting_variables_leaves_all_old_or_all_new() {
    play_all(&scenes::ENV);
}

#[test]
fn a_fault_at_any_point_of_setting_or_removing_a_secret_leaves_it_whole_or_gone() {
    play_all(&scenes::SECRET);
    play_all(&scenes::SECRET_REMOVE);
}

#[test]
fn a_fault_at_any_point_of_giving_a_secret_keeps_what_was_acknowledged_and_masked() {
    play_all(&scenes::SECRET_USE);
    // What else a destroy does is tried by its own scene.
    play_some(&scenes::SECRET_DESTROY, |name| name.starts_with("secret.") || name.starts_with("store."));
}

#[test]
fn a_fault_at_any_point_of_a_grant_keeps_what_was_acknowledged() {
    play_all(&scenes::GRANT);
    play_all(&scenes::NAMESPACE);
}

#[test]
fn a_fault_at_any_point_of_an_answer_grants_nothing_that_was_not_acknowledged_or_asked_for() {
    play_all(&scenes::APPROVE);
    play_all(&scenes::DENY);
}

#[test]
fn a_fault_at_any_point_of_trusting_the_gate_keeps_one_authority() {
    play_some(&scenes::TRUST, |name| name.starts_with("authority."));
}

#[test]
fn a_fault_at_any_point_of_a_wipe_in_tier_process_leaves_a_whole_workspace_or_none() {
    play_all(&scenes::WIPE_PROCESS);
}

#[test]
fn a_fault_at_any_point_of_an_extension_leaves_the_old_deadline_or_the_new() {
    play_all(&scenes::EXTEND);
    play_all(&scenes::USE);
}

#[test]
fn a_fault_at_any_point_of_a_pause_or_resume_leaves_the_sandbox_as_its_record_says() {
    play_all(&scenes::PAUSE);
    play_all(&scenes::RESUME);
}

#[test]
fn a_fault_at_any_point_of_a_sweep_ends_with_the_sandbox_gone_and_its_workspace_kept() {
    // What the backend does is tried by the scenes of destroying.
    play_some(&scenes::SWEEP, |name| name.starts_with("destroy.") || name.starts_with("pause."));
}

#[test]
fn a_fault_at_any_point_of_a_spawn_leaves_a_whole_child_or_none() {
    play_all(&scenes::SPAWN);
}

#[test]
fn a_fault_at_any_point_of_the_end_of_a_parent_leaves_no_child_without_one() {
    play_all(&scenes::CASCADE);
}

#[test]
fn a_fault_at_any_point_of_the_end_of_a_child_leaves_it_whole_or_gone() {
    play_all(&scenes::DESTROY_CHILD);
    play_all(&scenes::RESET_COUNT);
}

#[test]
fn a_fault_at_any_point_of_handing_data_over_leaves_the_old_or_the_new() {
    play_all(&scenes::BRIDGE);
}

#[test]
fn a_fault_at_any_point_of_adding_or_removing_a_webhook_leaves_it_whole_or_gone() {
    play_all(&scenes::WEBHOOK_ADD);
    play_all(&scenes::WEBHOOK_REMOVE);
}

#[test]
fn a_fault_at_any_point_of_a_delivery_loses_no_event() {
    play_some(&scenes::WEBHOOK_DELIVER, |name| name.starts_with("webhook."));
}
