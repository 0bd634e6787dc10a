#!/usr/bin/env bash
# Dependencies between crates go one way. One line per wall: a crate, then what it must not depend on, not
# even by way of others (normal dependencies, all features). A pattern is a name with `*` for any text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

walls() {
    # Messages between host and agent: understood without anything else of Isle.
    wall isle-wire 'isle-*'
    # Values, errors and the backend trait: what everything else is written in.
    wall isle-core isle-engine isle-store isle-server isle-mcp isle-client 'isle-linux*' rusqlite rustls
    # Backends know the trait, not who calls it.
    wall isle-linux isle-engine isle-store isle-server isle-mcp isle-client
    # The engine knows the trait, not who implements it, and not the doors it is reached through.
    wall isle-engine isle-linux isle-server isle-mcp isle-client
    # Doors do not know backends.
    wall isle-server isle-linux
    wall isle-mcp isle-linux isle-server
    # The agent runs inside every sandbox.
    wall isle-agent isle-core isle-engine isle-store isle-server isle-client rusqlite rustls
    # The harness sees the product as a user does: from outside.
    wall isle-e2e isle-core isle-engine isle-server isle-client
    # Clients, and what SDKs are generated from, know the interface and nothing behind it.
    wall isle-client isle-engine isle-store rusqlite rustls
    wall isle-api isle-engine isle-store rusqlite rustls
    wall isle-vault isle-engine isle-store
}

status=0
wall() { # wall CRATE FORBIDDEN...
    local crate="$1" found pattern name
    shift
    found="$(cargo tree --quiet --package "$crate" --edges normal --all-features --prefix none --format '{lib}' |
        tr _ - | sort -u | grep -vx -e "$crate" -e '')"
    for pattern in "$@"; do
        while IFS= read -r name; do
            # shellcheck disable=SC2053 # a pattern
            if [[ "$name" == $pattern ]]; then
                echo "walls: $crate must not depend on $name" >&2
                cargo tree --quiet --package "$crate" --edges normal --all-features --invert "$name" --prefix indent | head -n 20 >&2 || true
                status=1
            fi
        done <<<"$found"
    done
}

walls
[ "$status" != 0 ] || echo "walls: all stand"
exit "$status"
