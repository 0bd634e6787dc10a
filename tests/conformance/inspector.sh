#!/usr/bin/env bash
# A real MCP client (the Inspector's command line) against the real program, over stdio and HTTP.
# Usage: inspector.sh ISLE_BINARY
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
isle="$(realpath "${1:?usage: inspector.sh ISLE_BINARY}")"
install "${packages[@]}"
inspector=("$NODE" "$NODE_MODULES/@modelcontextprotocol/inspector/$("$NODE" -p \
    "Object.values(require('$NODE_MODULES/@modelcontextprotocol/inspector/package.json').bin)[0]")" --cli)

# A daemon of its own, which the program starts on demand and this script ends.
work="$(mktemp -d)"
export ISLE_STATE_DIR="$work/state" ISLE_RUNTIME_DIR="$work/run"
daemon=
finish() {
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; }
    "$isle" stop >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

expect() { # expect STATUS WORDS COMMAND...: it ends so, and its output has the words
    local wanted="$1" words="$2" status=0 output
    shift 2
    output="$("$@" 2>&1)" || status=$?
    if [ "$status" != "$wanted" ] || ! grep -qF -- "$words" <<<"$output"; then
        printf 'FAILED: %s\nexpected status %s and: %s\ngot status %s and:\n%s\n' \
            "$*" "$wanted" "$words" "$status" "$output" >&2
        exit 1
    fi
}

check() { # check NAME TARGET...
    local name="$1"
    shift
    expect 0 '"exec"' "${inspector[@]}" "$@" --method tools/list --strict
    expect 0 'inspected' "${inspector[@]}" "$@" --method tools/call --tool-name exec --tool-arg 'command=echo inspected'
    # The Inspector ends with 5 when the tool says isError.
    expect 5 'INVALID_ARGUMENT' "${inspector[@]}" "$@" --method tools/call --tool-name exec --tool-arg colour=red
    for era in legacy modern; do
        expect 0 '"exit_code": 3' "${inspector[@]}" "$@" --protocol-era "$era" \
            --method tools/call --tool-name exec --tool-arg 'command=exit 3'
    done
    echo "inspector over $name: ok"
}

check stdio "$isle" mcp
"$isle" stop >/dev/null

port="$("$NODE" -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')"
"$isle" serve --listen "127.0.0.1:$port" 2>"$work/serve.log" &
daemon=$!
until "$NODE" -e "fetch('http://127.0.0.1:$port/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"; do
    kill -0 "$daemon" 2>/dev/null || { cat "$work/serve.log" >&2; exit 1; }
done
token="$(cat "$ISLE_STATE_DIR/token")"
check http "http://127.0.0.1:$port/mcp" --transport http --header "Authorization: Bearer $token"
