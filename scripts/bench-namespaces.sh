#!/usr/bin/env bash
# Measures between two network namespaces of this machine, joined by virtual Ethernet, and checks what limits:
#
#   fast      the link as it is: a processor limits, or the sides wait for each other; never the link or the credits
#   rate      1 Gbit/s by netem, or $RATE: the link limits
#   delay     20 ms each way by netem, calls of 128 KiB, and a server that grants 4 credits: the credits limit
#
# `rpcrdma bench --server` runs in one namespace and `rpcrdma bench HOST` in the other. Prints the table of each setting and
# fails if another part limits.
#
# A kernel without netem limits the rate by tbf, and skips the delay. Other work on the machine is found to limit, so let it rest.
#
# Needs root, ip, tc, python3, and an rpcrdma of `cargo build --release`, or $RPCRDMA. SECONDS_EACH sets the time of each
# measure, 2 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
rpcrdma=${RPCRDMA:-${CARGO_TARGET_DIR:-target}/release/rpcrdma}
seconds=${SECONDS_EACH:-2}
rate=${RATE:-1gbit}

fail() {
    echo "bench-namespaces: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || fail "needs root"
for tool in ip tc python3; do command -v "$tool" >/dev/null || fail "$tool is missing"; done
[ -x "$rpcrdma" ] || fail "$rpcrdma is missing: cargo build --release, or set RPCRDMA"

# Names of this run, so that two runs do not meet.
here=rpcb$$c
there=rpcb$$s
server=
work=$(mktemp -d)
cleanup() {
    [ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
    # The link goes with its namespaces.
    ip netns del "$here" 2>/dev/null || true
    ip netns del "$there" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

ip netns add "$here"
ip netns add "$there"
ip link add veth0 netns "$here" type veth peer name veth0 netns "$there"
ip -n "$here" address add 192.0.2.1/24 dev veth0
ip -n "$there" address add 192.0.2.2/24 dev veth0
for side in "$here" "$there"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set veth0 up
done

# Shapes both ends of the link.
shape() {
    for side in "$here" "$there"; do
        tc -n "$side" qdisc del dev veth0 root 2>/dev/null || true
        tc -n "$side" qdisc add dev veth0 root "$@"
    done
}
netem=yes
shape netem delay 1us 2>/dev/null || netem=
for side in "$here" "$there"; do tc -n "$side" qdisc del dev veth0 root 2>/dev/null || true; done

# Starts a server with these options.
serve() {
    if [ -n "$server" ]; then
        kill "$server"
        wait "$server" || true
    fi
    ip netns exec "$there" "$rpcrdma" bench --server --json "$@" >"$work/server" 2>"$work/complaint" &
    server=$!
    for _ in $(seq 200); do
        grep -q '"ready"' "$work/server" && return
        sleep 0.05
    done
    fail "no server: $(cat "$work/complaint")"
}

# Measures, prints what limits each row, and checks the limit of READ and WRITE over RDMA.
#   measure NAME EXPECTED OPTIONS
measure() {
    name=$1 expected=$2
    shift 2
    ip netns exec "$here" "$rpcrdma" bench 192.0.2.2 --seconds "$seconds" --only stream,read,write --proto rdma --json "$@" \
        >"$work/$name.json"
    echo "== $name"
    python3 - "$name" "$expected" "$work/$name.json" <<'PYTHON' || exit 1
import json, re, sys

name, expected, document = sys.argv[1:]
rows = json.load(open(document))["rows"]
for row in rows:
    limit = row["limit"]
    print(f"{row['name']} over {row['transport']}: {row['value'] / 1e6:.1f} MB/s. {limit['by']}: {limit['text']}.")
limits = {row["limit"]["by"] for row in rows if row["transport"] == "rdma"}
if not limits:
    sys.exit(f"bench-namespaces: {name}: no row over RDMA")
for limit in sorted(limits):
    if not re.fullmatch(expected, limit):
        sys.exit(f"bench-namespaces: {name}: {limit} limits, not {expected}")
PYTHON
}

serve
measure fast '(client|server)-(cpu|machine)|depth'
if [ -n "$netem" ]; then
    shape netem rate "$rate" limit 10000
else
    shape tbf rate "$rate" burst 256k latency 100ms
fi
measure rate link
if [ -n "$netem" ]; then
    serve --credits 4
    shape netem delay 20ms limit 100000
    # Four longer calls would fill the link as well as TCP does with this delay.
    measure delay credits --depth 64 --size 128K
else
    echo "== delay: skipped, because this kernel has no netem"
fi
echo "Each part limited where it was to."
