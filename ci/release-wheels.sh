#!/usr/bin/env bash
# Builds the wheels that users install, into dist/: one for all GIL builds from CPython 3.11 on, and one for each
# free-threaded interpreter on PATH. On Linux they link against an old glibc (manylinux2014), with zig as the linker.
source "$(dirname "$0")/lib.sh"

venv=target/venv-release
python3.11 -m venv --clear "$venv" 2>/dev/null || python -m venv --clear "$venv"
bin=$(venv_bin "$venv")
"$bin/python" -m pip install --quiet 'maturin[zig]>=1.9,<2'

options=(--release --locked --out dist)
if [ "$(uname -s)" = Linux ]; then
    options+=(--zig --compatibility manylinux2014)
fi
say "CPython 3.11 and later"
"$bin/maturin" build "${options[@]}" --interpreter "$bin/python"
for version in 3.14t 3.15t; do
    if python=$(command -v "python$version"); then
        say "CPython $version"
        "$bin/maturin" build "${options[@]}" --interpreter "$python"
    else
        say "no python$version on PATH: no wheel for it"
    fi
done
