#!/usr/bin/env bash
# The official MCP conformance suite, both current protocol revisions, no expected failures.
# The server under test has the suite's fixtures and goes through the product's own transport.
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
install "${packages[@]}"

cd "$repository"
# Of the whole workspace: a choice of its own would have others build once more what is there already.
cargo build --quiet --workspace --bin mcp-conformance --features isle-mcp-conformance/conformance
binary="${CARGO_TARGET_DIR:-target}/debug/mcp-conformance"

work="$(mktemp -d)"
mkfifo "$work/address"
"$binary" 0 >"$work/address" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
read -r url <"$work/address"

status=0
for revision in 2025-11-25 2026-07-28; do
    log="$work/$revision.log"
    if "$NODE" "$NODE_MODULES/@modelcontextprotocol/conformance/dist/index.js" server \
        --url "$url" --requirements "$revision" -o "$work/$revision" >"$log" 2>&1; then
        echo "MCP $revision: conforms"
    else
        echo "MCP $revision: does not conform" >&2
        sed -n '/=== SUMMARY ===/,$p' "$log" >&2
        status=1
    fi
done
exit "$status"
