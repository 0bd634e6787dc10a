#!/usr/bin/env bash
# The end-to-end tests and the docs once more, as an ordinary user with subordinate ids. Only root
# can do that; for anyone else the tests have just run as an ordinary user. Mounts nothing and
# removes nothing but the user it made and its own directory.
# Usage: as-user.sh ISLE_PROGRAM [TEST]: with a name only that test program, and not the docs
set -euo pipefail
isle="$(realpath "${1:?give the path of the isle program}")"
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
only="${2:-}"
user=isle-test
[ "$(id -u)" = 0 ] || exit 0

made_user=
scratch="$(mktemp -d)"
finish() {
    rm -rf "$scratch"
    [ -z "$made_user" ] || userdel --remove "$user" 2>/dev/null || true
}
trap finish EXIT
chmod 755 "$scratch"

if ! getent passwd "$user" >/dev/null; then
    useradd --create-home "$user"
    made_user=1
fi
grep -q "^$user:" /etc/subuid || usermod --add-subuids 231072-296607 "$user"
grep -q "^$user:" /etc/subgid || usermod --add-subgids 231072-296607 "$user"

as_user() { # as_user COMMAND...
    runuser -u "$user" -- env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        HOME="$(getent passwd "$user" | cut -d: -f6)" INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$repository" \
        NEXTEST_PROFILE="${NEXTEST_PROFILE:-default}" ISLE_NO_SKIP="${ISLE_NO_SKIP:-}" \
        TMPDIR="${TMPDIR:-/tmp}" ISLE_TEST_RUN="${ISLE_TEST_RUN:-}" \
        ISLE_CONTAINMENT_TABLE="${ISLE_CONTAINMENT_TABLE:-}" "$@"
}

if ! as_user test -x "$isle" || ! as_user test -r "$repository/README.md"; then
    reason="an ordinary user cannot reach $repository or $isle"
    echo "as-user: SKIPPED: $reason;"
    echo "  → clone to a place others can enter, such as /srv, to run this part too"
    [ "${ISLE_NO_SKIP:-}" != 1 ] || exit 1
    [ -z "${ISLE_TEST_RUN:-}" ] || printf '{"program": "as-user.sh", "test": "all end-to-end tests and the docs", "user": "ordinary user", "reason": "%s", "cause": "host", "partly": false}\n' "$reason" >>"$ISLE_TEST_RUN/skips.jsonl"
    exit 0
fi
cd "$repository"

# Many tests wait more than they compute, so there are more of them than cores.
threads=$(($(nproc) * 3))

# All programs share the threads: the last test of one does not keep the next from beginning. What cargo
# would be asked is answered beforehand, since the user has none.
with_nextest() {
    cp "$1" "$scratch/cargo-nextest"
    cargo metadata --format-version 1 >"$scratch/cargo.json"
    # Of the whole workspace, as the tests that have just run: another choice would be another build.
    cargo nextest list --workspace --list-type binaries-only --message-format json \
        >"$scratch/binaries.json" 2>/dev/null
    # Unit tests know no user, and how requests are read does not depend on one.
    as_user "$scratch/cargo-nextest" nextest run --cargo-metadata "$scratch/cargo.json" \
        --binaries-metadata "$scratch/binaries.json" --workspace-remap "$repository" \
        --no-fail-fast --test-threads "$threads" --status-level slow --final-status-level slow \
        -E "package(isle) and kind(test) and ${only:+binary(/^$only/) and }not (binary(control_plane) - test(peers::))"
}

# One program after the other; the same build as the tests that have just run.
one_by_one() {
    cargo test --workspace --no-run --message-format=json 2>/dev/null | python3 -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["target"]["kind"] == ["test"] and built["manifest_path"].endswith("/isle/Cargo.toml"):
        print(built["executable"])
' >"$scratch/programs"
    while IFS= read -r program; do
        [[ "$(basename "$program")" == "$only"* ]] || continue
        echo "as $user: $(basename "$program")"
        (cd "$repository/crates/isle" && as_user CARGO_BIN_EXE_isle="$isle" "$program" --quiet --test-threads "$threads" </dev/null)
    done <"$scratch/programs"
}

nextest="$(command -v cargo-nextest || true)"
# The table is written by one test at a time, each of which takes all it can get.
if [ -n "$nextest" ] && [ -z "${ISLE_CONTAINMENT_TABLE:-}" ]; then with_nextest "$nextest"; else one_by_one; fi
[ -n "$only" ] || as_user "$repository/tests/docs/run.py" "$isle"
