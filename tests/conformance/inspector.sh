#!/usr/bin/env bash
# A real MCP client (the Inspector's command line) against the real program, over stdio and HTTP.
# Usage: inspector.sh ISLE_BINARY
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../daemon.sh"
install "${packages[@]}"
inspector=("$NODE" "$NODE_MODULES/@modelcontextprotocol/inspector/$("$NODE" -p \
    "Object.values(require('$NODE_MODULES/@modelcontextprotocol/inspector/package.json').bin)[0]")" --cli)

# Over stdio the program starts its daemon on demand; over HTTP this script does.
daemon=
end_daemon() {
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; }
}
trap 'end_daemon; finish' EXIT

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

# The Inspector hands its server almost nothing of its environment; without these words the server
# would be this user's own daemon.
printf '#!/bin/sh\nexec env ISLE_STATE_DIR=%q ISLE_RUNTIME_DIR=%q XDG_CONFIG_HOME=%q ISLE_ALLOW_DOWNGRADE=1 ISLE_WARM_DEFAULT=false %q mcp\n' \
    "$ISLE_STATE_DIR" "$ISLE_RUNTIME_DIR" "$XDG_CONFIG_HOME" "$isle" >"$work/server"
chmod +x "$work/server"
check stdio "$work/server"
"$isle" stop >/dev/null

port="$("$NODE" -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')"
"$isle" serve --listen "127.0.0.1:$port" 2>"$work/serve.log" &
daemon=$!
until "$NODE" -e "fetch('http://127.0.0.1:$port/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"; do
    kill -0 "$daemon" 2>/dev/null || { cat "$work/serve.log" >&2; exit 1; }
done
token="$(cat "$ISLE_STATE_DIR/token")"
check http "http://127.0.0.1:$port/mcp" --transport http --header "Authorization: Bearer $token"
