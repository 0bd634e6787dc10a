#!/usr/bin/env bash
# The end-to-end tests on a machine with cgroup v2 and systemd: as root, and as an ordinary user with
# delegated cgroups. The machine is emulated (QEMU), so this takes many minutes
# and is no part of `make test`. Needs root for making the image, once.
# Usage: run.sh CACHE_DIRECTORY [quick|full|COMMAND...]
#   quick  what depends on cgroups (the default); full  all end-to-end tests;
#   a command is run as root inside the machine instead.
set -euo pipefail
cache="$(realpath -m "${1:?give a directory for the image}")"
shift
what="${*:-quick}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
repository="$(cd "$here/../.." && pwd)"
target="$(realpath -m "${CARGO_TARGET_DIR:-$repository/target}")"

missing=()
command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
[ -x /usr/sbin/mkfs.ext4 ] || [ -x /sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "v2: this also needs: ${missing[*]}" >&2
    echo "  → sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
image="$("$here/image.sh" "$cache")"

# The programs go where they were built: the tests know that path.
cd "$repository"
work="$(mktemp -d "$cache/run.XXXXXX")"
qemu=
finish() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
mkdir "$work/disk"
cargo build --quiet -p isle
cargo test --quiet -p isle -p isle-linux --no-run --message-format=json 2>/dev/null | python3 -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["target"]["kind"] == ["test"]:
        print(built["target"]["name"], built["executable"])
' | sort -u >"$work/tests"
strip -o "$work/disk/isle" "$target/debug/isle"
while read -r name program; do
    strip -o "$work/disk/test-$name" "$program"
done <"$work/tests"
cp "$here/inside.sh" "$work/disk/"
cp -r "$repository/crates/isle/tests/cli/snapshots" "$work/disk/snapshots"
printf 'isle_path=%q\nrepository=%q\nwhat=%q\n' "$target/debug/isle" "$repository" "$what" >"$work/disk/settings"
mkfs.ext4 -q -d "$work/disk" "$work/disk.img" "$(($(du -sm "$work/disk" | cut -f1) * 5 / 4 + 64))M"

# Works everywhere; V2_ACCELERATOR=kvm is much faster where /dev/kvm really works.
accelerator="${V2_ACCELERATOR:-tcg,thread=multi}"
: >"$work/console"
# Nothing is written back to the image.
qemu-system-x86_64 -machine q35 -accel "$accelerator" -cpu max -smp 2 -m 3072 -nographic -no-reboot \
    -kernel "$image/vmlinuz" -initrd "$image/initrd" \
    -append 'root=/dev/vda rw console=ttyS0 quiet loglevel=3 systemd.show_status=false' \
    -drive "file=$image/root.img,format=raw,if=virtio,snapshot=on" \
    -drive "file=$work/disk.img,format=raw,if=virtio,readonly=on" \
    -nic none </dev/null >"$work/console" 2>&1 &
qemu=$!
tail --pid="$qemu" -n +1 -f "$work/console" | stdbuf -oL tr -d '\r'
wait "$qemu" || true
qemu=
tr -d '\r' <"$work/console" | grep -qx 'v2: all passed'
