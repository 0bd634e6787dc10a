# Sourced by scripts that need a daemon of their own. Takes the program as $1; sets `isle` and
# `work`, and leaves nothing behind when the script ends.

set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
isle="$(realpath "${1:?give the path of the isle program}")"

work="$(mktemp -d "${TMPDIR:-/tmp}/isle-test.XXXXXX")"
export ISLE_STATE_DIR="$work/state" ISLE_RUNTIME_DIR="$work/run" XDG_CONFIG_HOME="$work/config"
# Where the host cannot enforce every limit, the tests take what it can.
export ISLE_ALLOW_DOWNGRADE=1
# What nobody asked for need not be removed either.
export ISLE_WARM_DEFAULT=false

finish() {
    "$isle" rm --all --wipe >/dev/null 2>&1 || true
    "$isle" stop >/dev/null 2>&1 || true
    # What is named after the daemon's identity is looked for at the end of a whole run.
    if [ -n "${ISLE_TEST_RUN:-}" ] && [ -e "$ISLE_STATE_DIR/instance" ]; then
        sed -nE 's/.*"id" *: *"([^"]+)".*/isle-\1/p' "$ISLE_STATE_DIR/instance" >>"$ISLE_TEST_RUN/instances"
    fi
    rm -rf "$work"
}
trap finish EXIT
