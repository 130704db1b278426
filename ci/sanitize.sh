#!/usr/bin/env bash
# The core's tests on nightly Rust, under something that watches what they do:
#
#   ci/sanitize.sh miri       undefined behaviour and data races, by interpretation: the publication protocol
#   ci/sanitize.sh careful    the standard library's own checks, on
#   ci/sanitize.sh address    accesses outside of what is allocated
#   ci/sanitize.sh thread     data races, with the machine's threads: the publication protocol
#   ci/sanitize.sh python     as `address`, but of the package: many threads on one Engine, arrays that change while they are
#                             ingested, for minutes. Linux, with GCC's address sanitizer (libasan)
#
# `miri`, `careful` and `thread` need the nightly component rust-src, and `miri` needs miri.
source "$(dirname "$0")/lib.sh"

checker=${1:?miri, careful, address, thread or python}
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=target/$checker
say "$checker"
case $checker in
miri)
    # Sixteen schedules, each with other choices of what a load may return.
    MIRIFLAGS="-Zmiri-many-seeds=0..16" cargo +nightly miri test --test threads_publish
    ;;
careful)
    cargo +nightly careful --version >/dev/null 2>&1 || cargo install --locked --root target/tools cargo-careful
    PATH="$PWD/target/tools/bin:$PATH" cargo +nightly careful test
    ;;
address)
    RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --target "$host" --lib --tests
    ;;
thread)
    # The standard library is built as well, or its locks would not be seen.
    RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -Zbuild-std --target "$host" --test threads_publish
    ;;
python)
    venv=target/sanitized
    "${FRAMES2PY_PYTHON:-python3}" -m venv --clear "$venv"
    bin=$(venv_bin "$venv")
    "$bin/python" -m pip install --quiet --disable-pip-version-check maturin numpy pytest pytest-timeout hypothesis
    export VIRTUAL_ENV="$PWD/$venv" RUSTUP_TOOLCHAIN=nightly
    # The interpreter is not built with it, so the sanitizer is loaded before all else.
    RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt" "$bin/maturin" build --quiet --release --target "$host" \
        --interpreter "$bin/python" --out "$CARGO_TARGET_DIR/wheels"
    "$bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$CARGO_TARGET_DIR"/wheels/*.whl
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 FRAMES2PY_STRESS=${2:-30}
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so.6)" \
        "$bin/python" -m pytest -p no:cacheprovider --timeout=3000 \
        tests/threads/test_stress.py tests/threads/test_processes.py -k "readers_of_all_kinds or writes_the_array"
    ;;
*)
    echo "ci/sanitize.sh: unknown checker $checker" >&2
    exit 2
    ;;
esac
