#!/usr/bin/env bash
# Checks a session on the wire with an independent decoder, tshark: stores, lists and fetches a small tree over iWARP on the
# loopback interface under a capture. Fails unless tshark sees every layer, no CRC error and no malformed frame, and counts the
# same segments as our own decoder (cargo xtask capture-summary).
#
# Needs tshark, cargo and the right to capture (root). Runs the command that `cargo build --release` built, or $RPCRDMA.
set -euo pipefail
cd "$(dirname "$0")/.."
rpcrdma=${RPCRDMA:-${CARGO_TARGET_DIR:-target}/release/rpcrdma}

fail() {
    echo "wire-check: $*" >&2
    exit 1
}
command -v tshark >/dev/null || fail "tshark is missing (Debian: apt-get install tshark)"
[ -x "$rpcrdma" ] || fail "$rpcrdma is missing: cargo build --release, or set RPCRDMA"

work=$(mktemp -d)
children=()
cleanup() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    [ -n "${KEEP_CAPTURE:-}" ] && cp "$capture" "$KEEP_CAPTURE"
    rm -rf "$work"
}
trap cleanup EXIT
capture=$work/session.pcap

# Waits until a file has a line that matches.
await() {
    for _ in $(seq 200); do
        grep -q "$2" "$1" 2>/dev/null && return
        sleep 0.05
    done
    fail "no $2 in $(basename "$1"): $(cat "$1")"
}

# A tree in which every form of transfer occurs: empty, inline, Read and Write chunks, Reply chunk, links.
mkdir -p "$work/export" "$work/tree/many" "$work/tree/deep/er"
head -c 3000001 /dev/urandom >"$work/tree/large"
head -c 1048576 /dev/urandom >"$work/tree/one-mebibyte"
head -c 333 /dev/urandom >"$work/tree/deep/er/small"
: >"$work/tree/empty"
ln -s deep/er/small "$work/tree/link"
for number in $(seq 60); do echo "$number" >"$work/tree/many/$number-a-name-that-is-rather-long-for-a-listing"; done

# Records a session: tshark captures while the command stores, lists, fetches and removes the tree.
record() {
    rm -rf "$work/back" "$capture" "$work/ready" "$work/tshark.log"
    "$rpcrdma" serve --listen 127.0.0.1:0 --no-tcp --state "$work/state" --export "/=$work/export,squash=none" --json \
        >"$work/ready" 2>"$work/serve.log" &
    server=$!
    children+=("$server")
    await "$work/ready" rdma
    address=$(sed -n 's/.*"rdma":"\([^"]*\)".*/\1/p' "$work/ready")
    port=${address##*:}

    # -P would race with the start; tshark prints a line on standard error when it captures.
    tshark -q -i lo -f "tcp port $port" -B 256 -F pcap -w "$capture" 2>"$work/tshark.log" &
    tshark=$!
    children+=("$tshark")
    await "$work/tshark.log" Capturing
    # "Capturing on" is printed shortly before the capture begins: it has begun when it has packets.
    for _ in $(seq 100); do
        "$rpcrdma" ping --count 1 "$address" >/dev/null
        [ "$(stat -c %s "$capture" 2>/dev/null || echo 0)" -gt 1000 ] && break
        sleep 0.1
    done

    "$rpcrdma" ping --count 3 --interval 0 "$address" >/dev/null
    "$rpcrdma" put -r "$work/tree" "nfs://$address/tree"
    "$rpcrdma" ls -l "nfs://$address/tree" "nfs://$address/tree/many" >/dev/null
    "$rpcrdma" get -r "nfs://$address/tree" "$work/back"
    diff -r --no-dereference "$work/tree" "$work/back" >/dev/null || fail "the tree that came back differs"
    "$rpcrdma" rm -r "nfs://$address/tree"
    kill -TERM "$server"
    wait "$server" || fail "the server did not stop in order: $(cat "$work/serve.log")"
    sleep 1 # for the last packets to reach the capture
    kill -INT "$tshark"
    wait "$tshark" || true
}

# Our own decoder says whether the recording is complete, and counts its segments. A recording that lacks bytes, or one of the
# five commands, says nothing of the peers: it is made again.
for attempt in 1 2 3; do
    record
    status=0
    cargo xtask capture-summary "$capture" >"$work/summary" || status=$?
    [ "$(sed -n 's/^connections \([0-9]*\)$/\1/p' "$work/summary")" -ge 5 ] || status=3
    [ "$status" -ne 3 ] && break
    echo "wire-check: recording $attempt lacks bytes: $(tr '\n' ';' <"$work/summary")" >&2
done
[ "$status" -ne 3 ] || fail "no complete recording in $attempt attempts: $(cat "$work/tshark.log")"
[ "$status" -eq 0 ] || fail "our decoder finds faults: $(cat "$work/summary")"

# tshark finds MPA on any port by its start-up frames. It decodes the capture twice. The first pass leaves out the NFS layer:
# tshark 4.0 does not put the data of a Write chunk back into an NFS READ reply, calls the reply malformed, and loses the rest
# of the same TCP segment. In this pass everything below NFS must be flawless. TCP segments reach the capture out of order when
# a sender moves to another processor: unless tshark puts them in order, it loses the FPDUs.
dissect() { tshark -o tcp.reassemble_out_of_order:TRUE -r "$capture" "$@" 2>>"$work/dissect.log"; }
below() { dissect --disable-protocol nfs "$@"; }
count() { "$1" -Y "$2" -T fields -e frame.number | wc -l; }

for layer in iwarp_mpa iwarp_ddp iwarp_rdma rpcordma rpc mount; do
    frames=$(count below "$layer")
    [ "$frames" -gt 0 ] || fail "no frame with $layer in the capture ($(count below frame) frames, port $port)"
    printf '%-12s %6d frames\n' "$layer" "$frames"
done
below -Y iwarp_rdma -T fields -e iwarp_rdma.opcode | tr ',' '\n' | sort | uniq -c >"$work/opcodes"
# Both decoders see the same segments.
awk '{ print $2, $1 }' "$work/opcodes" >"$work/theirs"
grep '^0x' "$work/summary" >"$work/ours"
diff "$work/ours" "$work/theirs" >"$work/difference" ||
    fail "our decoder (<) and tshark (>) count different segments: $(cat "$work/difference")"
while read -r opcode name; do
    messages=$(sed -n "s/^ *\([0-9]*\) $opcode\$/\1/p" "$work/opcodes")
    [ -n "$messages" ] || fail "no $name in the capture"
    printf '%-28s %6d segments\n' "$name" "$messages"
done <<<"0x00 RDMA Write
0x01 RDMA Read Request
0x02 RDMA Read Response
0x03 Send
0x04 Send with Invalidate"
[ "$(count below 'iwarp_rdma.opcode == 7')" -eq 0 ] || fail "a Terminate message: $(below -Y 'iwarp_rdma.opcode == 7' | head -n 3)"

below -V -Y iwarp_mpa | grep -oE 'CRC check: .*(Good|Bad) CRC32' | sed 's/.*(//' | sort | uniq -c >"$work/crc"
good=$(sed -n 's/^ *\([0-9]*\) Good CRC32$/\1/p' "$work/crc")
bad=$(sed -n 's/^ *\([0-9]*\) Bad CRC32$/\1/p' "$work/crc")
[ "${good:-0}" -gt 0 ] || fail "tshark checked no CRC"
[ "${bad:-0}" -eq 0 ] || fail "$bad FPDUs with a CRC error, $good without"
printf '%-28s %6d good, 0 bad\n' "CRC32C of FPDUs" "$good"
malformed=$(count below _ws.malformed)
[ "$malformed" -eq 0 ] || fail "$malformed malformed frames below NFS: $(below -Y _ws.malformed | head -n 5)"

# Every procedure of the session was called, according to the RPC layer: in the NFS layer tshark shows no call behind a reply
# that it calls malformed in the same segment. The RPC layer does not always show a call that shares its segment with others
# either. Then the words of its header are searched: program 100003, version 3 and the procedure.
below -Y 'rpc.program == 100003 && rpc.msgtyp == 0' -T fields -e rpc.procedure | tr ',' '\n' | sort -n | uniq -c >"$work/procedures"
for procedure in 0 3 6 7 8 9 10 12 13 17; do
    grep -Eq "^ *[0-9]+ $procedure\$" "$work/procedures" && continue
    words=$(printf '00:01:86:a3:00:00:00:03:00:00:00:%02x' "$procedure")
    [ "$(count below "frame contains $words")" -gt 0 ] || fail "no call of NFS procedure $procedure in the capture"
done

# The second pass has the NFS layer: there must be calls and replies.
for direction in 0 1; do
    [ "$(count dissect "nfs && rpc.msgtyp == $direction")" -gt 0 ] || fail "no NFS message of direction $direction in the capture"
done
printf '%-12s %6d frames, %d procedures\n' nfs "$(count dissect nfs)" "$(grep -c '[0-9] [0-9]' "$work/procedures")"
echo "wire-check: passed"
