#!/usr/bin/env bash
# Fuzzes one target, or all of them in turn, with libFuzzer: run.sh [TARGET|all] [SECONDS]
#
# Needs nothing but Rust and a C++ compiler: the flags below are those `cargo fuzz` gives, without a
# sanitizer, which safe code has little use for. What is found new goes into a working corpus in the
# target directory, so that a run changes nothing in the repository; a failure is written there too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

wanted="${1:-all}"
seconds="${2:-30}"
all=(wire mux paths archives config bodies messages control names network reflections port_headers)
[ "$wanted" = all ] && targets=("${all[@]}") || targets=("$wanted")
if [[ " ${all[*]} " != *" ${targets[0]} "* ]]; then
    echo "fuzz: there is no target $wanted; there are ${all[*]}" >&2
    exit 2
fi

output="${CARGO_TARGET_DIR:-$PWD/../target}/fuzz"
triple="$(rustc -vV | sed -n 's/^host: //p')"
export CARGO_TARGET_DIR="$output/build"
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# With a target named, build scripts and macros are built without these flags.
cargo build --locked --release --target "$triple" "${targets[@]/#/--bin=}"

# What targets make for themselves goes with us, also when they are stopped halfway.
scratch="$(mktemp -d)"
trap 'rm -rf -- "$scratch"' EXIT
for target in "${targets[@]}"; do
    found="$output/corpus/$target"
    mkdir -p "$found" "$output/artifacts"
    echo "fuzz: $target for $seconds s"
    if ! TMPDIR="$scratch" "$CARGO_TARGET_DIR/$triple/release/$target" "$found" "corpus/$target" \
        -max_total_time="$seconds" -timeout=60 -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="$output/artifacts/$target-" >"$output/$target.log" 2>&1; then
        tail -60 "$output/$target.log" >&2
        echo "fuzz: $target failed; what it failed on is in $output/artifacts" >&2
        exit 1
    fi
    grep -E '^(Done|stat::number_of_executed_units)' "$output/$target.log"
done
