#!/usr/bin/env bash
# Calls the store of crates/examples-kv from another implementation of ONC RPC: a C client with the stubs that rpcgen makes
# of the same kv.x, and libtirpc. Prints one line if all values and errors are right; fails otherwise.
#
# Needs rpcgen, a C compiler, pkg-config, libtirpc and cargo. Builds the store, or runs $KV.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "rpcgen-client: $*" >&2
    exit 1
}
missing=()
command -v rpcgen >/dev/null || missing+=(rpcsvc-proto)
command -v cc >/dev/null || missing+=(gcc)
if ! command -v pkg-config >/dev/null; then
    missing+=(pkg-config libtirpc-dev)
elif ! pkg-config --exists libtirpc; then
    missing+=(libtirpc-dev)
fi
[ "${#missing[@]}" -eq 0 ] || fail "programs are missing (Debian: apt-get install ${missing[*]})"

example=$PWD/crates/examples-kv
if [ -z "${KV:-}" ]; then
    cargo build --locked -q -p rpcrdma-examples-kv
    KV=${CARGO_TARGET_DIR:-target}/debug/kv
fi

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# rpcgen names its files after the description, in the folder where it runs.
cp "$example/kv.x" "$work"
(cd "$work" && rpcgen -C -h -o kv.h kv.x && rpcgen -C -c -o kv_xdr.c kv.x && rpcgen -C -l -o kv_clnt.c kv.x)
read -r -a cflags <<<"$(pkg-config --cflags libtirpc)"
read -r -a libs <<<"$(pkg-config --libs libtirpc)"
# Warnings count in our own file, but for the function types of libtirpc; the stubs are as rpcgen writes them.
cc -std=gnu11 -O1 -Wall -Wextra -Wno-cast-function-type -Werror "${cflags[@]}" -I"$work" \
    -c "$example/rpcgen/client.c" -o "$work/client.o"
cc -std=gnu11 -O1 -w "${cflags[@]}" -I"$work" "$work/client.o" "$work/kv_xdr.c" "$work/kv_clnt.c" -o "$work/client" "${libs[@]}"

"$KV" serve 127.0.0.1:0 127.0.0.1:0 >"$work/addresses" &
server=$!
port=
for _ in $(seq 200); do
    port=$(sed -n 's/.*tcp \[[0-9.]*:\([0-9]*\)\].*/\1/p' "$work/addresses")
    [ -z "$port" ] || break
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    sleep 0.05
done
[ -n "$port" ] || fail "the server does not tell its address: $(cat "$work/addresses")"
timeout 120 "$work/client" "$port"
