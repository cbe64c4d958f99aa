#!/usr/bin/env bash
# Measures what a scrape of the metrics each second costs a server: the ratio of calls a second with and without it.
#
# For NULL calls, and for READs of 4 KiB from the page cache, over software iWARP on the loopback interface. Rounds without (A) and
# with (B) the scrape alternate as A B B A, so that a machine that gets slower or faster favours neither. The server, its client
# and the reader share the machine. Run it on an idle one: elsewhere the ratio says more about the others. At the end it prints the
# processor time that the server needs for one scrape.
#
#   cargo build --release --bins && cargo build --release -p rpcrdma-cli --example load
#   scripts/metrics-cost.sh [ROUNDS [SECONDS]]
#
# ROUNDS is the number of A B B A, by default 5, and SECONDS the time of each letter, by default 5.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-5}
target=${CARGO_TARGET_DIR:-target}/release
rpcrdma=${RPCRDMA:-$target/rpcrdma}
load=${LOAD:-$target/examples/load}

fail() {
    echo "metrics-cost: $*" >&2
    exit 1
}
[ -x "$rpcrdma" ] || fail "$rpcrdma is missing: cargo build --release, or set RPCRDMA"
[ -x "$load" ] || fail "$load is missing: cargo build --release -p rpcrdma-cli --example load, or set LOAD"

work=$(mktemp -d -p "$([ -d /dev/shm ] && echo /dev/shm || echo /tmp)")
server= reader=
cleanup() {
    for child in $reader $server; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

mkdir "$work/export"
head -c 16777216 /dev/urandom >"$work/export/file"
"$rpcrdma" serve --listen 127.0.0.1:0 --no-tcp --metrics 127.0.0.1:0 --state "$work/state" --export "/=$work/export" --json \
    >"$work/ready" 2>"$work/log" &
server=$!
for _ in $(seq 200); do
    [ -s "$work/ready" ] && break
    sleep 0.05
done
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/ready"; }
address=$(field rdma) metrics=$(field metrics)
[ -n "$address" ] && [ -n "$metrics" ] || fail "no server: $(cat "$work/log")"

# Reads the page once.
fetch() {
    exec 3<>"/dev/tcp/${metrics%:*}/${metrics##*:}"
    printf 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' >&3
    cat <&3 >"$work/page"
    exec 3>&-
    grep -q '^rpcrdma_calls_total' "$work/page" || echo "no page" >>"$work/missed"
}

# Reads the page once a second, until it is killed.
scrape() {
    trap 'exit 0' TERM
    while :; do
        fetch
        sleep 1
    done
}

# Adds the calls a second of one round to a file.
measure() {
    "$load" reads --seconds "$seconds" "${@:2}" "$address" /file | sed 's/.*"calls_per_second":\([0-9.]*\).*/\1/' >>"$work/$1"
}
median() { sort -g "$1" | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }

measure warm --null
for kind in null read; do
    options=()
    [ "$kind" = null ] && options=(--null)
    for _ in $(seq "$rounds"); do
        for letter in A B B A; do
            [ "$letter" = B ] && { scrape & reader=$!; }
            measure "$kind.$letter" "${options[@]}"
            [ "$letter" = B ] && { kill "$reader"; wait "$reader" 2>/dev/null || true; reader=; }
        done
    done
    without=$(median "$work/$kind.A") with=$(median "$work/$kind.B")
    awk -v kind="$kind" -v a="$without" -v b="$with" 'BEGIN {
        name = kind == "null" ? "NULL" : "READ of 4 KiB"
        printf "%-14s %.0f calls/s without, %.0f with a scrape a second: ratio %.4f\n", name, a, b, b / a
    }'
done

# The same cost without the noise of a full machine: the processor time of the server for each of many scrapes.
scrapes=1000
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$server/stat"; }
before=$(ticks)
for _ in $(seq $scrapes); do fetch; done
awk -v used="$(($(ticks) - before))" -v hertz="$(getconf CLK_TCK)" -v scrapes=$scrapes 'BEGIN {
    ms = used * 1000 / hertz / scrapes
    printf "%-14s %.3f ms of processor time at the server: %.3f %% of one processor at a scrape a second\n", "scrape", ms, ms / 10
}'
[ ! -e "$work/missed" ] || fail "$(wc -l <"$work/missed") scrapes had no page"
