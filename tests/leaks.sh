#!/usr/bin/env bash
# What a test run leaves behind on the host: processes, mounts, loop devices,
# directories and cgroups of Isle.
# Usage: leaks.sh note FILE   before the tests
#        leaks.sh check FILE  after them: fails when there is more than before
set -euo pipefail

things() {
    # A one-shot takes a moment to vanish after its answer, so only what stays counts: see check.
    ps -eo args= | grep -E '^(isle-agent|isle-fork-server) ' | sed 's/^/process /' || true
    grep -E '/native/|isle-test' /proc/self/mounts | sed 's/^/mount /' || true
    grep -lE '/native/volumes/|/isle-' /sys/block/loop*/loop/backing_file 2>/dev/null | sed 's/^/loop /' || true
    find "${TMPDIR:-/tmp}" /var/lib -maxdepth 1 -name 'isle-*' 2>/dev/null | sed 's/^/directory /' || true
    find /sys/fs/cgroup -maxdepth 4 -type d -path '*/isle-*/sb_*' 2>/dev/null | sed 's/^/cgroup /' || true
}

case "${1:-}" in
note)
    mkdir -p "$(dirname "$2")"
    things | sort >"$2"
    ;;
check)
    for _ in $(seq 50); do
        left="$(comm -13 "$2" <(things | sort))"
        [ -n "$left" ] || exit 0
        sleep 0.1
    done
    printf 'left behind by the tests:\n%s\n' "$left" >&2
    exit 1
    ;;
*)
    echo "usage: leaks.sh note|check FILE" >&2
    exit 2
    ;;
esac
