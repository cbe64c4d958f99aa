#!/usr/bin/env bash
# Checks the metrics of a busy server with Prometheus itself: promtool must find nothing to say about the page, and a Prometheus
# must scrape all of its samples, and answer the query that docs/metrics.md recommends.
#
# Needs prometheus and promtool. Runs the command that `cargo build --release` built, or $RPCRDMA.
set -euo pipefail
cd "$(dirname "$0")/.."
rpcrdma=${RPCRDMA:-${CARGO_TARGET_DIR:-target}/release/rpcrdma}

fail() {
    echo "metrics-check: $*" >&2
    exit 1
}
for program in prometheus promtool; do
    command -v "$program" >/dev/null || fail "$program is missing (Debian: apt-get install prometheus)"
done
[ -x "$rpcrdma" ] || fail "$rpcrdma is missing: cargo build --release, or set RPCRDMA"

work=$(mktemp -d)
children=()
cleanup() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

mkdir "$work/export"
head -c 3000001 /dev/urandom >"$work/export/file"
"$rpcrdma" serve --listen 127.0.0.1:0 --tcp 127.0.0.1:0 --metrics 127.0.0.1:0 --state "$work/state" \
    --export "/=$work/export,squash=none" --json >"$work/ready" 2>"$work/log" &
children+=($!)
for _ in $(seq 200); do
    [ -s "$work/ready" ] && break
    sleep 0.05
done
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/ready"; }
address=$(field rdma) metrics=$(field metrics)
[ -n "$address" ] && [ -n "$metrics" ] || fail "no server: $(cat "$work/log")"

# Work of several kinds, with failures, and a client that calls on and on.
"$rpcrdma" cat "nfs://$address/file" >/dev/null
"$rpcrdma" put "$work/export/file" "nfs://$address/copy" >/dev/null
"$rpcrdma" ls "nfs://$address/" >/dev/null
"$rpcrdma" ls "nfs://$address/missing" 2>/dev/null && fail "a missing file was listed"
"$rpcrdma" ping --count 1000000 --interval 0.002 "$address" >/dev/null &
children+=($!)

# Asks for the page as Prometheus does.
page() {
    exec 3<>"/dev/tcp/${metrics%:*}/${metrics##*:}"
    printf '%s\r\n' 'GET /metrics HTTP/1.1' "Host: $metrics" 'User-Agent: Prometheus/2.42.0' \
        'Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1' \
        'Accept-Encoding: gzip' 'X-Prometheus-Scrape-Timeout-Seconds: 10' '' >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}
page >"$work/page"
promtool check metrics <"$work/page" >"$work/lint" 2>&1 || fail "promtool refuses the page: $(cat "$work/lint")"
[ ! -s "$work/lint" ] || fail "promtool complains: $(cat "$work/lint")"

cat >"$work/prometheus.yml" <<EOF
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: rpcrdma, static_configs: [{targets: ["$metrics"]}]}
EOF
for attempt in $(seq 5); do
    own=127.0.0.1:$((20000 + RANDOM % 10000))
    prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data$attempt" --web.listen-address="$own" \
        >"$work/prometheus.log" 2>&1 &
    prometheus=$!
    children+=("$prometheus")
    for _ in $(seq 100); do
        grep -q 'Server is ready' "$work/prometheus.log" && break 2
        kill -0 "$prometheus" 2>/dev/null || break
        sleep 0.1
    done
    kill "$prometheus" 2>/dev/null || true
done
grep -q 'Server is ready' "$work/prometheus.log" || fail "no Prometheus: $(tail -3 "$work/prometheus.log")"

# Prints the answer to a query, a line for each series.
query() { promtool query instant "http://$own" "$1"; }
# Waits until the answer to a query matches.
await() {
    for _ in $(seq 100); do
        answer=$(query "$1" 2>&1 || true)
        grep -qE "$2" <<<"$answer" && return
        sleep 0.2
    done
    fail "$1: no answer matches $2: $answer"
}
await 'up{job="rpcrdma"}' '=> 1 @'
# Each line of the page is a series. A sample may have come since the page, but none is lost.
samples=$(grep -vc '^#' "$work/page")
await "scrape_samples_scraped{job=\"rpcrdma\"} >= $samples" '=> [0-9]+ @'
await 'rpcrdma_nfs_read_bytes_total' '=> 3000001 @'
await 'rpcrdma_call_errors_total{procedure="LOOKUP",status="NFS3ERR_NOENT"}' '=> [1-9][0-9]* @'
recommended=$(sed -n '/^```promql$/,/^```$/{/^```/d;p}' docs/metrics.md)
[ -n "$recommended" ] || fail "docs/metrics.md has no query"
await "$recommended" '\{procedure="NULL"\} => [0-9.e-]+ @'
echo "metrics-check: promtool has no complaint, and Prometheus scraped $samples samples; p99: $(grep NULL <<<"$answer")"
