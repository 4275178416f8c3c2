#!/usr/bin/env bash
# Fuzzes every parser for so many minutes each, beginning with the kept corpus.
set -euo pipefail
minutes=${1:-30}
cd "$(dirname "$0")"
rustup toolchain list 2>/dev/null | grep -q nightly ||
    { echo "missing: a nightly toolchain, which libFuzzer needs. Add one with 'rustup toolchain install nightly'." >&2; exit 1; }
command -v cargo-fuzz >/dev/null 2>&1 || cargo install cargo-fuzz --locked
# gcc takes a constant table of zstd, which it has made static, for one whose scope has ended.
export CFLAGS="${CFLAGS:-} -fno-sanitize-address-use-after-scope"
for target in log_entry branch stage letter parity bundle footer frame place store tree_head tree foreign anatomy skeleton filter graph; do
    cargo +nightly fuzz run "$target" "corpus/$target" -- -max_total_time=$((minutes * 60)) -max_len=4096
done
