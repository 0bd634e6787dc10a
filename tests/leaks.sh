#!/usr/bin/env bash
# What a test run left behind on the host: processes, mounts, loop devices, directories and cgroups. Only
# what belongs to the run counts: what names its directory, or an identity that a daemon in it had. Other
# daemons and sandboxes on this machine, their own tests included, are neither counted nor touched.
# Usage: leaks.sh check RUN_DIRECTORY  fails when something is left; see all.sh for what is in there
#        leaks.sh self-test ISLE_PROGRAM  leaks one thing of each kind and fails unless each is found
set -euo pipefail

# Identities: of daemons that are gone, and of those whose state is still there.
identities() { # identities RUN
    cat "$1/instances"
    find "$1/tmp" -xdev -maxdepth 6 -name instance -type f 2>/dev/null -print0 |
        xargs -0 -r sed -nE 's/.*"id" *: *"([^"]+)".*/isle-\1/p' || true
}

of_other_mounts() { # passes the processes that do not share our mounts: those say nothing about a process
    local own pid
    own="$(readlink /proc/self/ns/mnt)"
    while read -r pid; do
        [ "$(readlink "/proc/$pid/ns/mnt" 2>/dev/null || echo "$own")" = "$own" ] || echo "$pid"
    done
}

pids() { sed -nE 's|^/proc/([0-9]+)/.*|\1|p' | sort -un; }

things() { # things RUN MARKS: MARKS is a file with the run's directory and its identities, one per line
    local run="$1" marks="$2" pid
    {
        # A process that is gone meanwhile is none.
        { grep -lsaFf "$marks" /proc/[0-9]*/cmdline /proc/[0-9]*/environ /proc/[0-9]*/cgroup || true; } | pids
        { grep -lsFf "$marks" /proc/[0-9]*/mountinfo || true; } | pids | of_other_mounts
        { find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe -maxdepth 0 -lname "$run/tmp/*" 2>/dev/null || true; } | pids
    } | sort -un | while read -r pid; do
        [ "$pid" != "$$" ] && [ -e "/proc/$pid" ] || continue
        echo "process $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || true)"
    done
    { grep -Ff "$marks" /proc/self/mounts || true; } | sed 's/^/mount /'
    { grep -lFf "$marks" /sys/block/loop*/loop/backing_file 2>/dev/null || true; } | sed 's/^/loop device /'
    find "$run/tmp" -xdev -mindepth 1 -maxdepth 1 \( -name 'isle-*' -o -name '.tmp*' \) | sed 's/^/directory /'
    { find /var/lib -maxdepth 1 -name 'isle-*' 2>/dev/null | grep -Ff "$marks" || true; } | sed 's/^/directory /'
    { find /sys/fs/cgroup -maxdepth 8 -type d -name 'isle-*' 2>/dev/null | grep -Ff "$marks" || true; } | sed 's/^/cgroup /'
}

check() { # check RUN
    local run marks left
    run="$(realpath "$1")"
    marks="$(mktemp)"
    # A sandbox takes a moment to vanish after the answer about it, so only what stays counts.
    for _ in $(seq "${LEAKS_PATIENCE:-50}"); do
        { echo "$run/tmp" && identities "$run"; } | grep . | sort -u >"$marks"
        left="$(things "$run" "$marks")"
        [ -n "$left" ] || break
        sleep 0.1
    done
    rm -f "$marks"
    [ -n "$left" ] || { echo "leaks: none" && return 0; }
    printf 'left behind by the tests:\n%s\n' "$left" >&2
    return 1
}

case "${1:-}" in
check)
    # Neither this script nor what it starts is part of the run.
    [ -z "${ISLE_TEST_RUN:-}" ] || exec env -u ISLE_TEST_RUN -u TMPDIR "${BASH_SOURCE[0]}" "$@"
    check "${2:?give the directory of the run}"
    ;;
self-test)
    source "$(dirname "${BASH_SOURCE[0]}")/leaks-self-test.sh"
    self_test "$(realpath "${2:?give the path of the isle program}")"
    ;;
*)
    echo "usage: leaks.sh check RUN_DIRECTORY | self-test ISLE_PROGRAM" >&2
    exit 2
    ;;
esac
