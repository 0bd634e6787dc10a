#!/usr/bin/env bash
# A release build has no failpoints: neither the way to arm one nor the name of any is left in it.
# Builds only the crate they live in; a whole program, when given, is looked through too.
# Usage: release.sh [ISLE_PROGRAM]
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
programs=()
for program in "$@"; do programs+=("$(realpath "$program")"); done
cd "$repository"

objects="$(mktemp -d)"
trap 'rm -rf "$objects"' EXIT
cargo build --quiet --release --package isle-fail
library="$(realpath "${CARGO_TARGET_DIR:-target}/release/libisle_fail.rlib")"
# What gets into programs is the objects; the rest of a library describes its source.
(cd "$objects" && ar x "$library" && rm -f lib.rmeta)
for file in "$objects"/* "${programs[@]}"; do
    for trace in ISLE_FAILPOINTS create.recorded; do
        if grep -q --text "$trace" "$file"; then
            echo "release: $(basename "$file") still has $trace" >&2
            exit 1
        fi
    done
done
echo "release: no failpoints"
