#!/usr/bin/env bash
# Makes the machine of the cgroup v2 tests: a Debian root file system with systemd and its kernel,
# once per list of packages. Prints the directory with root.img, vmlinuz and initrd.
# Usage: image.sh CACHE_DIRECTORY
set -euo pipefail
cache="$(realpath -m "${1:?give a directory for the image}")"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. /etc/os-release
suite="${VERSION_CODENAME:-bookworm}"
packages=linux-image-cloud-amd64,initramfs-tools,systemd-sysv,dbus,dbus-user-session,libpam-systemd
packages+=,uidmap,e2fsprogs,python3,procps,kmod,util-linux,curl,git,nodejs,openssl,iproute2

key="$(cat "$here/image.sh" "$here/isle-v2.service" <(echo "$suite $packages") | sha256sum | cut -c1-16)"
image="$cache/$suite-$key"
if [ -e "$image/root.img" ]; then
    echo "$image"
    exit 0
fi

mkdir -p "$cache"
work="$(mktemp -d "$cache/making.XXXXXX")"
trap 'rm -rf --one-file-system "$work"' EXIT
# No services are started and nothing is fetched but packages of the suite itself.
mmdebstrap --quiet --variant=minbase --include="$packages" \
    --aptopt='Acquire::Languages "none"' \
    --customize-hook='useradd --root "$1" --create-home --shell /bin/bash tester' \
    --customize-hook='printf "tester:100000:65536\n" >"$1/etc/subuid"' \
    --customize-hook='printf "tester:100000:65536\n" >"$1/etc/subgid"' \
    --customize-hook='mkdir -p "$1/var/lib/systemd/linger" && touch "$1/var/lib/systemd/linger/tester"' \
    --customize-hook='echo isle-v2 >"$1/etc/hostname"' \
    --customize-hook='printf "/dev/vdb /mnt ext4 ro 0 0\n" >"$1/etc/fstab"' \
    --customize-hook="copy-in '$here/isle-v2.service' /etc/systemd/system" \
    --customize-hook='chroot "$1" systemctl enable isle-v2.service' \
    --customize-hook='chroot "$1" systemctl mask getty.target apt-daily.timer apt-daily-upgrade.timer' \
    "$suite" "$work/root" >&2
mkdir "$work/image"
cp "$work"/root/boot/vmlinuz-* "$work/image/vmlinuz"
cp "$work"/root/boot/initrd.img-* "$work/image/initrd"
mkfs.ext4 -q -L root -d "$work/root" "$work/image/root.img" 8G >&2
mv "$work/image" "$image"
echo "$image"
