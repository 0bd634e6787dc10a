# Sourced by leaks.sh: proves that its check finds one thing of every kind that a test daemon can leave,
# and that a daemon of somebody else, which makes and destroys sandboxes all the while, is not noticed.

daemon_in() { # daemon_in DIRECTORY ISLE COMMAND...: a client of the daemon of that directory
    local home="$1"
    shift
    env -u ISLE_TEST_RUN -u TMPDIR ISLE_STATE_DIR="$home/state" ISLE_RUNTIME_DIR="$home/run" \
        XDG_CONFIG_HOME="$home/config" ISLE_ALLOW_DOWNGRADE=1 ISLE_WARM_DEFAULT=false "$@"
}

expect_clean() { # expect_clean RUN WHEN
    check "$1" >/dev/null || { echo "leaks self-test: FAILED: something is found $2" >&2 && exit 1; }
}

expect_leak() { # expect_leak RUN KIND: a kind, or the beginning of the line that names what is left
    local found
    if found="$(LEAKS_PATIENCE=2 check "$1" 2>&1)" || ! grep -q "^$2 " <<<"$found"; then
        printf 'leaks self-test: FAILED: a leaked %s is not found\n%s\n' "$2" "$found" >&2
        exit 1
    fi
    echo "leaks self-test: a leaked $2 is found"
}

clean_up() {
    kill "$busy" 2>/dev/null || true
    wait "$busy" 2>/dev/null || true
    local home
    for home in "$run/tmp/isle-test-self" "$other"; do
        [ -d "$home/state" ] || continue
        daemon_in "$home" "$isle" rm --all --wipe >/dev/null 2>&1 || true
        daemon_in "$home" "$isle" stop >/dev/null 2>&1 || true
    done
    rm -rf --one-file-system "$run" "$other"
}

self_test() { # self_test ISLE
    isle="$1" busy=
    run="$(mktemp -d)" other="$(mktemp -d)"
    trap clean_up EXIT
    mkdir "$run/tmp" && : >"$run/instances"
    local home="$run/tmp/isle-test-self" instance pid base

    # Somebody else, at work.
    daemon_in "$other" "$isle" exec theirs -- sh -c 'echo kept > file'
    while :; do
        daemon_in "$other" "$isle" exec passing -- true && daemon_in "$other" "$isle" rm passing --wipe
    done >/dev/null 2>&1 &
    busy=$!
    expect_clean "$run" "before anything was done"

    mkdir "$home"
    expect_leak "$run" directory
    daemon_in "$home" "$isle" exec box -- true
    instance="$(sed -nE 's/.*"id" *: *"([^"]+)".*/isle-\1/p' "$home/state/instance")"
    expect_leak "$run" process
    # A daemon that is killed leaves its sandbox, which does not name the directory of its own accord.
    pid="$(daemon_in "$home" "$isle" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["daemon"]["pid"])')"
    kill -9 "$pid"
    expect_leak "$run" 'process [0-9]* isle-agent'
    daemon_in "$home" "$isle" rm --all --wipe >/dev/null
    daemon_in "$home" "$isle" stop >/dev/null
    rm -rf --one-file-system "$home"
    expect_clean "$run" "after everything was removed"

    # From here on only the list of identities knows what was the daemon's.
    echo "$instance" >>"$run/instances"
    if [ "$(id -u)" = 0 ]; then
        base=/sys/fs/cgroup/pids
        [ -d "$base" ] || base=/sys/fs/cgroup
        mkdir "$base/$instance"
        expect_leak "$run" cgroup
        rmdir "$base/$instance"
        mkdir "/var/lib/$instance"
        expect_leak "$run" directory
        rmdir "/var/lib/$instance"
        mkdir "$run/tmp/mounted" && mount -t tmpfs tmpfs "$run/tmp/mounted"
        expect_leak "$run" mount
        umount "$run/tmp/mounted" && rmdir "$run/tmp/mounted"
        truncate -s 1M "$run/tmp/image"
        pid="$(losetup --find --show "$run/tmp/image")"
        expect_leak "$run" 'loop device'
        losetup --detach "$pid" && rm "$run/tmp/image"
    else
        echo "leaks self-test: cgroups, mounts and loop devices are not tried: only root can leak them"
    fi
    expect_clean "$run" "at the end"
    [ "$(daemon_in "$other" "$isle" exec theirs -- cat file)" = kept ]
    kill -0 "$busy"
    echo "leaks self-test: passed beside somebody else's daemon"
}
