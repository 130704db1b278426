#!/usr/bin/env bash
# Fuzzes every decoder for a while, from seeds made by the encoders. Takes the seconds for each target (default: 20).
#
# Stable Rust is enough: coverage comes from LLVM's pass, and memory is safe by construction or checked elsewhere.
source "$(dirname "$0")/lib.sh"

seconds=${1:-20}
target=$(rustc -vV | sed -n 's/^host: //p')
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
flags=(
    --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
)
say "build the fuzz targets"
RUSTFLAGS="${flags[*]}" cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml --target "$target"
binaries=fuzz/target/$target/release
say "seeds"
"$binaries/seeds" "$corpus"
for name in $(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v -e '^frames2py-fuzz$' -e '^seeds$'); do
    say "fuzz $name for $seconds s"
    # A quarter of a GB in all and 64 MB at once, for files of at most 16 KiB; 10 s for one of them.
    "$binaries/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=256 -malloc_limit_mb=64 -max_len=16384 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="$corpus/" "$corpus/$name"
done
