#!/usr/bin/env bash
# Schemathesis against the real daemon on TCP: whatever /openapi.json allows and forbids is tried;
# no answer may be a server error, and every answer has the status, the content type, the headers
# and the schema the document gives it.
# Usage: run.sh ISLE_PROGRAM
source "$(dirname "${BASH_SOURCE[0]}")/../daemon.sh"

version=4.32.5
environment="$repository/target/schemathesis-$version"
if [ ! -x "$environment/bin/schemathesis" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

# Calls must not wait long for what a random command does, and must not need much of the machine.
export ISLE_WAIT=1s ISLE_MAX_TIMEOUT=3s ISLE_MEMORY=128M ISLE_PIDS=32
"$isle" serve --listen 127.0.0.1:0 2>"$work/serve.log" &
daemon=$!
url=
until url="$(grep -o 'http://127.0.0.1:[0-9]*' "$work/serve.log" | head -n 1)" && [ -n "$url" ]; do
    kill -0 "$daemon" 2>/dev/null || { cat "$work/serve.log" >&2; exit 1; }
    sleep 0.1
done
token="$(cat "$ISLE_STATE_DIR/token")"

# try_all NAME OPTION...: there is no schema for the messages of a WebSocket, and a watch goes on until
# its caller leaves. Their tests are elsewhere.
try_all() {
    local name="$1" report="$work/report-${1// /-}"
    shift
    if "$environment/bin/schemathesis" "$@" run "$url/openapi.json" \
        --header "Authorization: Bearer $token" \
        --exclude-operation-id attach --exclude-operation-id watch_files_events --exclude-operation-id follow_events \
        --phases examples,coverage,fuzzing --max-examples 15 --generation-deterministic \
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance \
        --request-timeout 30 --warnings off --no-color >"$report" 2>&1; then
        grep -E ' generated' "$report" | sed "s/^ */schema, $name: /"
    else
        cat "$report" >&2
        exit 1
    fi
}

# Random names stop at the check of the name, so another round is held to one that is good. Both mostly
# wait for answers, so they go side by side.
try_all 'any name' &
any=$!
try_all 'a real sandbox' --config-file "$(dirname "${BASH_SOURCE[0]}")/schemathesis.toml" &
real=$!
wait "$any"
wait "$real"
