#!/usr/bin/env bash
# Runs inside the machine, as root, started by isle-v2.service. Says `v2: all passed` at the very end.
set -uo pipefail
. /mnt/settings
failed=0
say() { echo "v2: $*"; }
check() { # check WHAT COMMAND...
    local what="$1" output
    shift
    if output="$("$@" 2>&1)"; then
        say "ok: $what"
    else
        say "FAILED: $what"
        printf '%s\n' "$output"
        failed=1
    fi
}

mkdir -p "$(dirname "$isle_path")" "$repository/crates/isle/tests/cli"
ln -s /mnt/isle "$isle_path"
ln -s /mnt/isle /usr/local/bin/isle
ln -s /mnt/snapshots "$repository/crates/isle/tests/cli/snapshots"
chmod -R go+rX "$(dirname "$isle_path")" "$repository"
modprobe -a overlay loop
mkdir -p /root/work && cd /root/work || exit 1
export HOME=/root
# The service's own environment must not matter.
unset XDG_RUNTIME_DIR

as_user() { # as_user COMMAND...: as the ordinary user, in no session of its own
    runuser -u tester -- env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/home/tester \
        INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$repository" "$@"
}
with_manager() { # the same, with the user's service manager within reach
    as_user XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"
}
# In a delegated scope, in a leaf of it, so that several daemons find room beside it.
delegated() {
    with_manager systemd-run --user --scope --quiet --collect -p Delegate=yes -- bash -c '
        own="/sys/fs/cgroup$(sed -n "s/^0:://p" /proc/self/cgroup)"
        mkdir "$own/isle-daemon" && echo $$ >"$own/isle-daemon/cgroup.procs" && exec "$@"' bash "$@"
}
enforced() { # enforced KEY: reads a result of `isle doctor --json`
    python3 -c '
import json, sys
tiers = {tier["tier"]: tier for tier in json.load(sys.stdin)["tiers"]}
lines = {line["key"]: line for line in tiers["container"]["containment"]["guarantees"]}
for key in sys.argv[1:]:
    if lines[key]["status"] != "enforced":
        sys.exit(f"{key}: {lines[key]}")' "$@"
}
tests() { # tests PREFIX...: the tests of the end-to-end binaries, as the function `as` says
    local name filters
    local names=(cli doors crash)
    [ "$what" = quick ] || names+=(faults gate hostile_files posture resources)
    for name in "${names[@]}"; do
        # What the command line says is the same everywhere.
        filters=(--skip help:: --skip settings::)
        if [ "$what" = quick ]; then
            case "$name" in
            cli) filters+=(daemon:: versions::) ;;
            doors) filters+=(limits:: run_limits:: lifecycle:: ends:: downgrade::) ;;
            crash) filters+=(idle:: parts:: drain::) ;;
            esac
        fi
        say "tests $name"
        (cd "$repository/crates/isle" && "$@" env CARGO_BIN_EXE_isle="$isle_path" timeout 2400 /mnt/test-$name --test-threads=2 "${filters[@]}" </dev/null) || {
            say "FAILED: tests $name"
            failed=1
        }
    done
    say "tests process_tier"
    (cd /tmp && "$@" timeout 1800 /mnt/test-process_tier --test-threads=2 </dev/null) || {
        say "FAILED: tests process_tier"
        failed=1
    }
}

say "Linux $(uname -r), cgroups on $(stat -fc %T /sys/fs/cgroup)"
if [ "$what" != quick ] && [ "$what" != full ]; then
    bash -c "$what"
    exit
fi
check 'the machine has cgroup v2 only' test "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs

say 'as root'
check 'doctor is content' bash -c 'isle doctor --json >/root/work/doctor.json'
check 'every limit is enforced' bash -c "$(declare -f enforced); enforced memory_limit pids_limit cpu_limit disk_limit <doctor.json"
check 'a first run' isle run -- true
check 'try' timeout 600 isle try
check 'stop' bash -c 'isle rm --all --wipe; isle stop'
tests env

say 'as an ordinary user without delegated cgroups'
as_user XDG_RUNTIME_DIR= isle doctor --json >plain.json
fix='export XDG_RUNTIME_DIR=/run/user/1000; isle restart'
check 'doctor says what is missing and the command that fixes it' bash -c "
    grep -q 'not delegated' plain.json && grep -qF '$fix' plain.json || { cat plain.json; exit 1; }"
check 'tier process, from which this kernel does not keep all files, is refused, downgrade or not' bash -c "$(declare -f as_user); repository=$repository
    as_user isle run --tier process --allow-downgrade -- true 2>refusal && exit 1; grep -q 'use Linux 6.2 or newer' refusal || { cat refusal; exit 1; }"
check 'a container is watched instead' bash -c "$(declare -f as_user); repository=$repository
    as_user isle run -- true; as_user isle exec box -- true; as_user isle status box | grep -q 'memory_limit: watched' || exit 1
    as_user isle rm box --wipe; as_user isle stop"

say 'as an ordinary user whose service manager is within reach'
check 'the daemon started on demand has cgroups' bash -c "$(declare -f as_user with_manager); repository=$repository
    with_manager isle run --json -- true >run.json && ! grep -q not_enforced run.json; cat run.json
    with_manager isle status --json; with_manager isle rm --all --wipe; with_manager isle stop"
check 'doctor there says so' bash -c "$(declare -f as_user with_manager enforced); repository=$repository
    with_manager isle doctor --json | enforced memory_limit pids_limit cpu_limit"

# What a sandbox may use holds, and is told, for whichever daemon asks.
cat >/root/work/limits.sh <<'END'
set -e
eat='{"sandbox": "small", "command": "dd if=/dev/zero of=/dev/null bs=300M count=1"}'
isle call exec "$eat" | tee answer.json | grep -q '"state": "oom_killed"' || { cat answer.json; exit 1; }
isle status small --json | python3 -c '
import json, sys
usage = json.load(sys.stdin)["detail"]["usage"]
assert usage["memory_bytes"] and usage["pids"] and usage["oom_kills"], usage'
END
chmod -R go+rX /root/work && chmod go+x /root
check 'limits outlive a daemon that was started on demand' with_manager bash -c '
    set -e; cd; isle call create "{\"sandbox\": \"small\", \"memory\": \"64M\"}"; isle exec small -- touch /tmp/kept
    bash /root/work/limits.sh; isle restart; isle exec small -- ls /tmp/kept; bash /root/work/limits.sh
    kill -9 "$(isle status --json | python3 -c "import json, sys; print(json.load(sys.stdin)[\"daemon\"][\"pid\"])")"
    isle exec small -- ls /tmp/kept; bash /root/work/limits.sh
    [ "$(find /sys/fs/cgroup/user.slice -type d -name "isle-daemon" | wc -l)" = 1 ]
    isle rm --all --wipe; isle stop'
check 'limits outlive a daemon that is a service' with_manager bash -c '
    set -e; cd; mkdir -p .config/systemd/user
    printf "[Service]\nExecStart=/usr/local/bin/isle serve\nKillMode=process\n" >.config/systemd/user/isle.service
    export ISLE_NO_AUTOSTART=1; up() { for i in $(seq 200); do isle status >/dev/null 2>&1 && return; sleep 0.1; done; systemctl --user status isle; return 1; }
    systemctl --user daemon-reload; systemctl --user start isle; up
    isle call create "{\"sandbox\": \"small\", \"memory\": \"64M\"}"; isle exec small -- touch /tmp/kept
    bash /root/work/limits.sh; systemctl --user restart isle; up; isle exec small -- ls /tmp/kept; bash /root/work/limits.sh
    isle rm --all --wipe; systemctl --user stop isle'

say 'as an ordinary user in a delegated scope'
tests delegated

say 'what is left'
check 'no sandbox is left' bash -c '! ls -d /sys/fs/cgroup/isle-* 2>/dev/null && ! pgrep -f "^isle-" -a'
[ "$failed" = 0 ] && say 'all passed'
