#!/usr/bin/env bash
# Fuzzes every decoder for a while, from seeds made by the encoders. Takes the seconds for each target (default: 10), and
# then the targets (default: all). What makes one fail is kept in fuzz/artifacts.
#
# Stable Rust and a C++ compiler are enough: coverage comes from LLVM's pass, and memory is safe by construction or
# checked elsewhere.
source "$(dirname "$0")/lib.sh"

seconds=${1:-10}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
    for path in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$path" .rs)")
    done
fi
host=$(rustc -vV | sed -n 's/^host: //p')
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
flags=(
    --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
)
say "build the fuzz targets"
RUSTFLAGS="${flags[*]}" cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml --target "$host"
binaries=${CARGO_TARGET_DIR:-fuzz/target}/$host/release
mkdir -p fuzz/artifacts

# Runs a target in as much memory as a file of any size may take. libFuzzer's limit is on what is used and looked at once a
# second; the other one stops every allocation at once, but only Linux has it.
run() {
    local name=$1
    shift
    (
        if [ "$(uname -s)" = Linux ]; then
            ulimit -v $((512 << 10))
            # Each thread's arena would be 64 MiB of it.
            export MALLOC_ARENA_MAX=1
        fi
        "$binaries/$name" -rss_limit_mb=384 -artifact_prefix="fuzz/artifacts/$name-" "$@"
    ) >"$seeds/log" 2>&1 || {
        cat "$seeds/log"
        echo "$name failed; a file that makes it fail again is in fuzz/artifacts" >&2
        exit 1
    }
    sed -nE 's/^stat::(number_of_executed_units|peak_rss_mb): */\1 /p; s/^Executed .*\/(.* in .* ms)$/\1/p' "$seeds/log"
}

FRAMES2PY_SEEDS=$seeds run seeds -runs=0
for name in "${targets[@]}"; do
    say "fuzz $name for $seconds s"
    # Files of at most 16 KiB, 10 s for one of them.
    run "$name" -max_total_time="$seconds" -timeout=10 -max_len=16384 -print_final_stats=1 "$seeds/$name"
done
say "files that would fill the memory"
for file in "$seeds"/bombs/*; do
    name=$(basename "$file")
    run "${name%%-*}" -timeout=60 "$file"
done
