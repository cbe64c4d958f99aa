#!/usr/bin/env bash
# Runs each fuzz target for some seconds: scripts/fuzz-all.sh [SECONDS]
# A stable toolchain suffices: RUSTC_BOOTSTRAP makes it accept the sanitizer flags that cargo-fuzz passes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --quiet
export RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
    echo "-- $target, ${seconds}s"
    log=$(mktemp)
    # New inputs go to the corpus; the seeds are only read.
    corpora=("fuzz/corpus/$target")
    mkdir -p "${corpora[0]}"
    [ ! -d "fuzz/seeds/$target" ] || corpora+=("fuzz/seeds/$target")
    # Leak detection needs ptrace, which containers often refuse; memory is owned by safe Rust here.
    if ! cargo fuzz run "$target" "${corpora[@]}" -- -max_total_time="$seconds" -detect_leaks=0 -rss_limit_mb=2048 -timeout=10 >"$log" 2>&1; then
        tail -n 60 "$log"
        exit 1
    fi
    grep -E '^(Done|#[0-9]+.*DONE)' "$log" | tail -n 2
    rm -f "$log"
done
