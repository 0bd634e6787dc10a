#!/usr/bin/env bash
# What `make test` runs, and the totals at its end. All temporary files of the run are below one directory
# of its own, so that what belongs to the tests can be told from what belongs to other users of Isle on
# this machine (leaks.sh), and the tests write down there what they skip (totals.py).
# Usage: all.sh TARGET_DIRECTORY [STAGE...]: all stages, or only these, of which `leaks` is the last
# TESTS="-E test(doors)" chooses Rust tests, in the words of nextest
set -uo pipefail
target="$(realpath -m "${1:?give the target directory}")"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stages=("$@")
[ "$#" -gt 0 ] || stages=(rust release conformance inspector schema docs as-user leaks-self-test leaks)
isle="$target/debug/isle"

# An ordinary user works here too. Sockets are below it, so its name is short.
run="$(mktemp -d "${TMPDIR:-/tmp}/isle-run.XXXXXX")"
chmod 755 "$run"
mkdir "$run/logs" && mkdir -m 1777 "$run/tmp"
: >"$run/skips.jsonl" && : >"$run/instances" && chmod 666 "$run/skips.jsonl" "$run/instances"

# Many tests wait more than they compute, so there are more of them than cores.
rust() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace -j "$(($(nproc) * 3))" --color "$colour" ${TESTS:-}
    else
        cargo test --workspace --color "$colour"
    fi
}

stage() {
    case "$1" in
    rust) rust ;;
    release) tests/faults/release.sh ;;
    conformance) tests/conformance/run.sh ;;
    inspector) tests/conformance/inspector.sh "$isle" ;;
    schema) tests/schema/run.sh "$isle" ;;
    docs) tests/docs/run.py "$isle" ;;
    as-user) tests/as-user.sh "$isle" ;;
    leaks-self-test) tests/leaks.sh self-test "$isle" ;;
    *) echo "all: no stage $1" >&2 && exit 2 ;;
    esac
}

colour=never
[ ! -t 1 ] || colour=always
status=0
for name in "${stages[@]}"; do
    if [ "$name" = leaks ]; then
        tests/leaks.sh check "$run" 2>&1 | tee "$run/logs/leaks.log"
    else
        ISLE_TEST_RUN="$run" TMPDIR="$run/tmp" stage "$name" 2>&1 | tee "$run/logs/$name.log"
    fi
    status="${PIPESTATUS[0]}"
    echo "$status" >"$run/logs/$name.status"
    # What comes after builds on it.
    [ "$status" = 0 ] || break
done

mkdir -p "$target/test-run"
cp -r "$run/logs" "$run/skips.jsonl" "$target/test-run/"
python3 tests/totals.py "$run" || status=1
if [ "$status" = 0 ]; then
    rm -rf --one-file-system "$run"
else
    echo "all: what is left of the run is in $run" >&2
fi
exit "$status"
