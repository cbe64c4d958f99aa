#!/usr/bin/env bash
# Prints the instructions of a NULL call, both ends together, by version of RPC-over-RDMA. They are counted by valgrind, as the
# difference between two runs.
# "proto" counts the functions of rpcrdma-proto without their callees; "all" includes the simulated fabric and the runtime.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "this needs valgrind" >&2; exit 1; }
# With symbols, so that functions have names.
CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --locked --quiet -p rpcrdma --example null
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
few=1000
many=3000
# VERSION COUNT -> "proto all", instructions of the complete run.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$place/out" target/release/examples/null "$1" "$2" >/dev/null 2>&1
    callgrind_annotate --threshold=100 --show=Ir "$place/out" | awk '
        function number(text) { gsub(",", "", text); return text + 0 }
        /PROGRAM TOTALS/ { all = number($1) }
        /rpcrdma_proto/ { proto += number($1) }
        END { printf "%.0f %.0f\n", proto, all }'
}
printf '%-8s %8s %8s\n' version proto all
for version in 1 p1 p2 p3; do
    read -r proto_few all_few < <(count "$version" $few)
    read -r proto_many all_many < <(count "$version" $many)
    printf '%-8s %8d %8d\n' "$version" $(((proto_many - proto_few) / (many - few))) $(((all_many - all_few) / (many - few)))
done
