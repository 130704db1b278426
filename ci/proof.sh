#!/usr/bin/env bash
# The publication protocol under model checkers (docs/protocol.md): loom takes small models through all interleavings,
# shuttle takes larger ones through random schedules.
source "$(dirname "$0")/lib.sh"

# The protocol's own assertions are part of the proof.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
# Folders of their own: the flags differ, and each change of flags builds everything anew.
say "loom"
RUSTFLAGS="--cfg loom --deny warnings" CARGO_TARGET_DIR=target/loom \
    cargo test --release --locked --test loom_publish --test loom_wakers -- --test-threads=1 --nocapture
say "shuttle"
RUSTFLAGS="--cfg shuttle --deny warnings" CARGO_TARGET_DIR=target/shuttle \
    cargo test --release --locked --test shuttle_publish -- --test-threads=1
