# Sourced by the scripts beside it: a Node.js new enough for the MCP tools, and the tools, in a
# cache that `cargo clean` removes. Sets NODE and NODE_MODULES.

set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
cache="$repository/target/conformance-node"

# install PACKAGE...: exact versions only, so that a green run stays a green run.
install() {
    local wanted
    wanted="$(printf '%s\n' "$@")"
    mkdir -p "$cache"
    if [ "$(cat "$cache/.installed" 2>/dev/null || true)" != "$wanted" ]; then
        if ! command -v npm >/dev/null; then
            echo "npm is needed to install $*; install Node.js first (apt-get install npm)" >&2
            exit 2
        fi
        [ -e "$cache/package.json" ] || echo '{"private": true}' >"$cache/package.json"
        npm install --prefix "$cache" --no-audit --no-fund --no-save --loglevel=error "$@" >&2
        printf '%s\n' "$wanted" >"$cache/.installed"
    fi
    NODE_MODULES="$cache/node_modules"
    NODE="$NODE_MODULES/node/bin/node"
}

packages=(node@22.23.3 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0)
