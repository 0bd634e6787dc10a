#!/usr/bin/env bash
# What Isle is built from: licences, duplicates, sources, known holes (cargo deny, see deny.toml).
# Brings the program itself when it is missing, which takes some minutes once. The list of known holes
# comes over the network; where it cannot be had, that is said and the rest is checked all the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=0.20.2
if ! cargo deny --version >/dev/null 2>&1; then
    echo "deny: building cargo-deny $VERSION"
    if ! cargo install --quiet --locked --version "$VERSION" cargo-deny; then
        if cargo info cargo-deny >/dev/null 2>&1; then
            echo "deny: cargo-deny could not be built" >&2
            exit 1
        fi
        echo "deny: NOT CHECKED: cargo-deny is not installed and cannot be fetched from here" >&2
        exit 0
    fi
fi

cargo deny --locked check --hide-inclusion-graph licenses bans sources

known=("${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/.git)
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny --locked check --hide-inclusion-graph advisories
elif [ -e "${known[0]}" ]; then
    echo "deny: the list of known holes cannot be fetched from here; the copy of an earlier run is used" >&2
    cargo deny --locked --offline check --hide-inclusion-graph advisories
else
    echo "deny: NOT CHECKED for known holes: their list cannot be fetched from here" >&2
fi
