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
need uidmap command -v newuidmap
need bubblewrap command -v bwrap
need util-linux command -v setpriv
need e2fsprogs test -x /usr/sbin/mkfs.ext4 -o -x /sbin/mkfs.ext4
need python3 command -v python3
need python3-venv python3 -c 'import ensurepip'
need python3-matplotlib /usr/bin/python3 -c 'import matplotlib'
need python3-requests python3 -c 'import requests'
need nodejs command -v node
need npm command -v npm
need curl command -v curl
need git command -v git
need openssl command -v openssl
need prometheus command -v prometheus

if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing; install Rust first, see https://rustup.rs" >&2
    exit 1
fi
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
else
    echo "setup: the tests also need: ${missing[*]}" >&2
    echo "  → sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
