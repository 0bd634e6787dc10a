#!/usr/bin/env bash
# What the tests need besides Rust. As root on a system with apt-get it is installed; anyone else
# is told what is missing and the command that brings it.
set -euo pipefail

missing=()
need() { # need PACKAGE TEST...: the package is missing when the test fails
    local package="$1"
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

need gcc command -v cc
need g++ command -v c++
need libc6-dev test -e /usr/include/stdlib.h
need iproute2 command -v ip
need uidmap command -v newuidmap
need bubblewrap command -v bwrap
need util-linux command -v setpriv
need e2fsprogs test -x /usr/sbin/mkfs.ext4 -o -x /sbin/mkfs.ext4
need python3 command -v python3
need python3-venv python3 -c 'import ensurepip'
need python3-matplotlib /usr/bin/python3 -c 'import matplotlib'
need python3-pip /usr/bin/python3 -m pip --version
need nodejs command -v node
need npm command -v npm
need curl command -v curl
need git command -v git
need dpkg-dev command -v dpkg-scanpackages
need wget command -v wget
need golang-go command -v go
need default-jdk-headless command -v javac
need openssl command -v openssl
need openssh-client command -v ssh-keygen
need openssh-server test -x /usr/sbin/sshd
need redis-tools command -v redis-cli
need postgresql sh -c 'ls /usr/lib/postgresql/*/bin/postgres'
need dbus-daemon command -v dbus-daemon
need gnome-keyring command -v gnome-keyring-daemon
need libsecret-tools command -v secret-tool
need python3-requests /usr/bin/python3 -c 'import requests'
need python3-aiohttp /usr/bin/python3 -c 'import aiohttp'
need prometheus command -v prometheus

if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing; install Rust first, see https://rustup.rs" >&2
    exit 1
fi
# Where sshd has never been a service it lacks its directory.
prepare() { [ "$(id -u)" != 0 ] || [ -d /run/sshd ] || mkdir -m 755 /run/sshd; }
if [ "${#missing[@]}" -eq 0 ]; then
    prepare
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    # In that run level no package starts a service of its own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
    prepare
else
    echo "setup: the tests also need: ${missing[*]}" >&2
    echo "  → sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
