#!/usr/bin/env bash
# Runs the attacks everywhere, as root and as an ordinary user, and writes the table of
# docs/operate/containment.md. An ordinary user writes the columns of ordinary users only. Docker is attacked
# where a daemon answers; where none does and dockerd is installed, root starts one for that time, with
# a network and directories of its own.
# Usage: containment.sh ISLE_PROGRAM
set -euo pipefail
isle="${1:?give the path of the isle program}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/operate/containment.md

scratch="$(mktemp -d)"
finish() {
    if [ -s "$scratch/docker.pid" ]; then
        kill "$(cat "$scratch/docker.pid")" || true
        # It removes the file when it has let go of everything.
        for _ in $(seq 100); do
            [ -e "$scratch/docker.pid" ] || break
            sleep 0.2
        done
    fi
    rm -rf --one-file-system "$scratch"
}
trap finish EXIT
chmod 755 "$scratch"

own_docker() {
    export DOCKER_HOST="unix://$scratch/docker.sock"
    # Its bridge and its rules for packets are in a network namespace, so that the host's stay as they are.
    # A route that leads nowhere stands for the way out that a host has.
    unshare --net --mount sh -c "ip link set lo up && ip link add out type veth peer name nowhere && \
        ip address add 192.0.2.2/24 dev out && ip link set out up && ip link set nowhere up && ip route add default via 192.0.2.1 && \
        exec dockerd --data-root '$scratch/docker' --exec-root '$scratch/docker-run' \
        --pidfile '$scratch/docker.pid' --host '$DOCKER_HOST'" >"$scratch/docker.log" 2>&1 &
    for _ in $(seq 100); do
        if docker info >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "containment: dockerd did not start; its column stays as it is" >&2
    tail -n 5 "$scratch/docker.log" >&2
}
if ! docker info >/dev/null 2>&1 && command -v dockerd docker unshare ip >/dev/null && [ "$(id -u)" = 0 ]; then
    own_docker
fi

# Both users write it, so it is written beside and put in place at the end.
table="$scratch/table"
cp "$page" "$table"
chmod 666 "$table"
export ISLE_CONTAINMENT_TABLE="$table"
cargo test --package isle --test containment -- --test-threads=1
tests/as-user.sh "$isle" containment
cat "$table" >"$page"
echo "containment: $page is written"
