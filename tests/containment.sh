#!/usr/bin/env bash
# Runs the attacks everywhere, as root and as an ordinary user, and writes the table of
# docs/containment.md. An ordinary user writes the columns of ordinary users only.
# Usage: containment.sh ISLE_PROGRAM
set -euo pipefail
isle="${1:?give the path of the isle program}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/containment.md

# Both users write it, so it is written beside and put in place at the end.
table="$(mktemp)"
trap 'rm -f "$table"' EXIT
cp "$page" "$table"
chmod 666 "$table"
export ISLE_CONTAINMENT_TABLE="$table"
cargo test --package isle --test containment -- --test-threads=1
tests/as-user.sh "$isle" containment
cat "$table" >"$page"
echo "containment: $page is written"
