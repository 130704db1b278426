#!/usr/bin/env bash
# Format, lints and tests of the crate; the core needs no Python.
source "$(dirname "$0")/lib.sh"

say "cargo fmt"
cargo fmt --check
cargo fmt --check --manifest-path fuzz/Cargo.toml
say "cargo clippy, core"
cargo clippy --all-targets -- --deny warnings
say "cargo clippy, bindings"
cargo clippy --all-targets --features python,pyo3/abi3-py311 -- --deny warnings
say "cargo test"
cargo test
say "cargo test, without what only some machines have"
FRAMES2PY_ISA=scalar cargo test --lib kernels
say "cargo doc, core"
RUSTDOCFLAGS="--deny warnings" cargo doc --no-deps --document-private-items
say "cargo doc, bindings"
RUSTDOCFLAGS="--deny warnings" cargo doc --no-deps --document-private-items --features python,pyo3/abi3-py311
