#!/usr/bin/env bash
# The core's tests on nightly Rust, under something that watches what they do:
#
#   ci/sanitize.sh miri       undefined behaviour and data races, by interpretation: the publication protocol
#   ci/sanitize.sh careful    the standard library's own checks, on
#   ci/sanitize.sh address    accesses outside of what is allocated
#   ci/sanitize.sh thread     data races, with the machine's threads: the publication protocol
#
# All but `address` need the nightly component rust-src, and `miri` needs miri.
source "$(dirname "$0")/lib.sh"

checker=${1:?miri, careful, address or thread}
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
*)
    echo "ci/sanitize.sh: unknown checker $checker" >&2
    exit 2
    ;;
esac
