//! Other people's sandboxes under the same attacks, for comparison. Nothing is expected of them but that
//! the attacks run; what comes of it is in the table.

use std::process::{Command, Stdio};

use isle_probe::{Verdict, limits};

use crate::harness::{finish, require};
use crate::range::{Range, Results, collect, with};
use crate::table;

/// Bubblewrap with everything unshared and everything dropped it can drop.
fn bubblewrap(range: &Range) -> Results {
    let mut words: Vec<String> = "bwrap --unshare-all --uid 1000 --gid 1000 --cap-drop ALL --new-session \
         --die-with-parent --clearenv --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
         --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --tmpfs /workspace --chdir /workspace \
         --ro-bind"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    words.extend([range.program().display().to_string(), "/probe".into(), "/probe".into(), "attack".into()]);
    words.extend(range.arguments(None));
    let (name, value) = range.canary.variable();
    collect(range.on_a_terminal(&words).env(name, value))
}

#[test]
fn bubblewrap_is_attacked_the_same_way() {
    let range = Range::new();
    let results = bubblewrap(&range);
    let escaped = with(&results, Verdict::Escaped);
    assert!(escaped.contains(&"proc.seccomp"), "it has no filter of its own: {escaped:?}");
    assert!(!escaped.contains(&"fs.canary_read"), "{escaped:?}");
    table::write("bubblewrap", &results);
}

fn quietly(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// An image that goes away again.
struct Image(String);

impl Drop for Image {
    fn drop(&mut self) {
        quietly(Command::new("docker").args(["rmi", &self.0]));
    }
}

/// Docker as it comes, where it runs; an image with nothing but the program.
#[test]
fn docker_is_attacked_the_same_way_where_it_runs() {
    require!(quietly(Command::new("docker").arg("info")), "there is no Docker here");
    let range = Range::new();
    let image = Image(format!("isle-range-{}", std::process::id()));
    let import = format!("tar -C {} -c isle-probe | docker import - {}", range.path().display(), image.0);
    assert!(finish(Command::new("sh").args(["-c", &import])).status.success());
    let limits = format!("--memory={} --pids-limit={} --cpus={}", limits::MEMORY, limits::PIDS, limits::CPUS);
    let mut command = Command::new("docker");
    command.args(["run", "--rm"]).args(limits.split(' ')).args([&image.0, "/isle-probe", "attack"]);
    let results = collect(command.args(range.arguments(None)));
    assert!(!with(&results, Verdict::Contained).is_empty());
    table::write("docker", &results);
}
