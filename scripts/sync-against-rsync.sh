#!/usr/bin/env bash
# Compares `rpcrdma sync` with rsync on a real tree: the files of this repository, and beside them hard links, holes, links,
# odd names, set-ID bits, owners and times in nanoseconds. The same changes at random go to both, again and again. After each
# round three copies must equal the source: that of rsync, that at our server, and that which sync fetches from there.
# Compared are content, type, mode, owner, time, links, the names that share a file, and the storage that files use.
#
# Needs rsync, git, diff and find of GNU, and root. Runs the command that `cargo build --release` built, or $RPCRDMA.
# $ROUNDS is the number of rounds with changes (default 12), $SEED that of the changes (default 1).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
rpcrdma=$(realpath -m "${RPCRDMA:-${CARGO_TARGET_DIR:-target}/release/rpcrdma}")
rounds=${ROUNDS:-12}
RANDOM=${SEED:-1}

fail() {
    echo "sync-against-rsync: $*" >&2
    exit 1
}
command -v rsync >/dev/null || fail "rsync is missing (Debian: apt-get install rsync)"
command -v git >/dev/null || fail "git is missing (Debian: apt-get install git)"
[ -x "$rpcrdma" ] || fail "$rpcrdma is missing: cargo build --release, or set RPCRDMA"
[ "$(id -u)" -eq 0 ] || fail "owners can be compared only as root"

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    if [ -n "${KEEP:-}" ]; then echo "sync-against-rsync: the trees are in $work" >&2; else rm -rf "$work"; fi
}
trap cleanup EXIT

# The tree of the source. A directory of its own has what a repository lacks.
source=$work/source
odd=$source/odd
mkdir -p "$source" "$work/export" "$work/rsync" "$work/back"
git archive HEAD | tar -x -C "$source"
mkdir -p "$odd/empty" "$odd/set-group" "$odd/sticky" "$odd/$(printf 'a\377\376b')" "$odd/closed"
ln -s ../README.md "$odd/link"
ln -s nowhere "$odd/dangling"
ln -s .. "$odd/above"
ln -s "$(printf 'to \377\n')" "$odd/link with an odd target"
for name in ' space ' $'new\nline' '*' '-n' '\back' "quo'te\"" '~' '%41' $'\377\001' "$(printf 'n%.0s' $(seq 255))"; do
    echo "$name" >"$odd/$name"
done
echo first >"$odd/first"
ln "$odd/first" "$odd/second"
ln "$odd/first" "$odd/empty/../third"
ln "$source/README.md" "$odd/hard-link-of-README"
truncate -s 5000000 "$odd/only-a-hole"
truncate -s 8000000 "$odd/holes"
for block in 0 300 700 1500; do
    head -c 8192 /dev/urandom | dd of="$odd/holes" bs=4096 seek="$block" conv=notrunc status=none
done
head -c 3000001 /dev/urandom >"$odd/large"
: >"$odd/nothing"
for mode in 4755 2755 6711 0000 0400 1644; do
    echo "$mode" >"$odd/mode-$mode"
    chown 1234:5678 "$odd/mode-$mode"
    chmod "$mode" "$odd/mode-$mode"
done
chown 42:43 "$odd/set-group" "$odd/only-a-hole"
chown -h 7:8 "$odd/dangling"
chmod 2775 "$odd/set-group"
chmod 1777 "$odd/sticky"
echo hidden >"$odd/closed/file"
chmod 0500 "$odd/closed"
# NFS version 3 has the times from 1970 to 2106.
touch -d '1970-01-01 00:00:00.000000001 UTC' "$odd/nothing"
touch -d '2106-02-07 06:28:15.999999999 UTC' "$odd/first"
touch -h -d '2001-09-09 01:46:40.123456789 UTC' "$odd/link"
touch -d '2038-01-19 03:14:08 UTC' "$odd/sticky"
fifo=no
mkfifo "$odd/pipe" 2>/dev/null && fifo=yes

"$rpcrdma" serve --listen 127.0.0.1:0 --no-tcp --state "$work/state" --export "/=$work/export,squash=none" --json \
    >"$work/ready" 2>"$work/serve.log" &
server=$!
for _ in $(seq 200); do
    grep -q rdma "$work/ready" 2>/dev/null && break
    sleep 0.05
done
address=$(sed -n 's/.*"rdma":"\([^"]*\)".*/\1/p' "$work/ready")
[ -n "$address" ] || fail "the server does not start: $(cat "$work/serve.log")"
url=nfs://$address/tree

# Prints all that is compared, a line for each name: type, mode, owner, group, time, length, target of a link, and the name.
# Names and targets are quoted, so that a line has one name. The length of directories is of the file system.
attributes() {
    (cd "$1" && find . \( -type p -o -printf '%y %m %U %G %T@ %s\t%l\t%P\0' \)) |
        sed -z -E 's/^(d [^\t]*) [0-9]+\t/\1 -\t/' | tr '\n\0' '\001\n' | sort
}
# Prints the names that share a file, the group of each file on a line.
groups() {
    (cd "$1" && find . -type f -links +1 -printf '%i\t%P\0') | tr '\n\0' '\001\n' | sort -t "$(printf '\t')" -k 2 |
        awk -F '\t' '{ names[$1] = names[$1] FS $2 } END { for (file in names) print names[file] }' | sort
}
# Prints the blocks of storage of each file that has far fewer than its length needs.
sparse() {
    (cd "$1" && find . -type f -size +64k -printf '%b %s\t%P\0') | tr '\n\0' '\001\n' |
        awk -F '\t' '{ split($1, n, " "); if (n[1] * 512 < n[2] * 0.9) print n[1] FS $2 }' | sort
}

held=0
differ=0
# Counts a check: the name and two files that must be equal.
equal() {
    if diff -a "$2" "$3" >"$work/difference"; then
        held=$((held + 1))
    else
        differ=$((differ + 1))
        echo "sync-against-rsync: $1 differs:" >&2
        head -n 20 "$work/difference" | cat -v >&2
    fi
}
# Compares a copy with the tree that it must equal. rsync does not part names that shared a file before, so its later copies
# are not asked for that.
compare() {
    local name=$1 copy=$2
    diff -r --no-dereference -x pipe "$expected" "$copy" >"$work/content" 2>&1 || true
    equal "$name: content" /dev/null "$work/content"
    for what in attributes sparse groups; do
        [[ $what != groups || $name != round*rsync ]] || continue
        "$what" "$expected" >"$work/expected.$what"
        "$what" "$copy" >"$work/theirs"
        equal "$name: $what" "$work/expected.$what" "$work/theirs"
    done
}
# Runs a sync; its warning about the pipe is expected.
synchronise() {
    "$rpcrdma" sync --quiet "$@" 2>"$work/warnings" || fail "sync $* ended with code $?: $(cat "$work/warnings")"
    sed -i -e '/odd\/pipe: left out/d' -e '/^rpcrdma: 1 left out/d' "$work/warnings"
    [ ! -s "$work/warnings" ] || fail "sync $* warns: $(cat "$work/warnings")"
}
# Makes all copies, compares them, and checks that another sync has nothing to do.
round() {
    local name=$1
    shift
    # Without --modify-window=-1, rsync takes times within one second for equal.
    rsync -aHS --quiet --no-specials --modify-window=-1 "$@" "$source/" "$work/rsync/tree/"
    synchronise "$@" "$source" "$url"
    synchronise "$@" "$url" "$work/back/tree"
    [ "$expected" != "$source" ] || compare "$name, rsync" "$work/rsync/tree"
    compare "$name, sync to the server" "$work/export/tree"
    compare "$name, sync from the server" "$work/back/tree"
    "$rpcrdma" sync --dry-run "$@" "$source" "$url" >"$work/changes" 2>/dev/null
    equal "$name: sync to the server, again," /dev/null "$work/changes"
    "$rpcrdma" sync --dry-run "$@" "$url" "$work/back/tree" >"$work/changes" 2>/dev/null
    equal "$name: sync from the server, again," /dev/null "$work/changes"
}

# Sets the variable `chosen` to an object of the source, by find's conditions; never to the pipe. Fails without any.
choose() {
    local all
    mapfile -d '' all < <(cd "$source" && find . -mindepth 1 ! -name pipe "$@" -print0 | sort -z)
    [ "${#all[@]}" -gt 0 ] || return
    chosen=$source/${all[$(((RANDOM * 32768 + RANDOM) % ${#all[@]}))]}
}
# Changes the source at one place.
change() {
    local from
    case $((RANDOM % 20)) in
    0) choose -type f && echo "$RANDOM more" >>"$chosen" ;;
    1) choose -type f -size +0 && printf %05d "$RANDOM" | dd of="$chosen" conv=notrunc status=none ;;
    2) choose -type f && truncate -s "$RANDOM" "$chosen" ;;
    3) choose -type f && rm "$chosen" ;;
    4) choose -type l && rm "$chosen" ;;
    5) choose && touch -h -d "@$((RANDOM * 30000)).$((RANDOM + 100000000))" "$chosen" ;;
    6) choose -type f && from=$chosen && choose -type d && mv -f "$from" "$chosen/moved-$RANDOM" ;;
    7) choose -type d ! -path './odd*' && mv "$chosen" "$chosen-$RANDOM" ;;
    8) choose ! -type l && chmod "$(printf '%o' $((RANDOM % 4096)))" "$chosen" ;;
    9) choose && chown -h "$((RANDOM % 5)):$((RANDOM % 5))" "$chosen" ;;
    10) choose -type f && from=$chosen && choose -type d && ln "$from" "$chosen/linked-$RANDOM" ;;
    11) choose -type f -links +1 && cp -p "$chosen" "$work/split" && mv -f "$work/split" "$chosen" ;;
    12) choose -type d && echo "$RANDOM" >"$chosen/new-$RANDOM" ;;
    13) choose -type d && mkdir -p "$chosen/new-$RANDOM/deep/er" ;;
    14) choose -type d && ln -s "$RANDOM" "$chosen/link-$RANDOM" ;;
    15) choose -type f && rm "$chosen" && ln -s somewhere "$chosen" ;;
    16) choose -type l && rm "$chosen" && echo "$RANDOM" >"$chosen" ;;
    17) choose -type f && rm "$chosen" && mkdir "$chosen" && echo "$RANDOM" >"$chosen/inside" ;;
    18) choose -type d -empty && rmdir "$chosen" && echo "$RANDOM" >"$chosen" ;;
    19) choose -type f && truncate -s 300000 "$chosen" && echo end >>"$chosen" ;;
    esac
}

mkdir "$work/rsync/tree"
expected=$source
round first
[ "$fifo" = no ] || [ ! -e "$work/export/tree/odd/pipe" ] || fail "the server has a pipe"
for number in $(seq "$rounds"); do
    for _ in $(seq 60); do change || true; done
    # Chance takes links and empty directories away, and needs some.
    mkdir "$odd/empty-$number" && ln -s "$number" "$odd/link-$number"
    round "round $number" --delete
done

# The last two rounds begin with a copy of rsync without the names that it did not part.
rm -rf "$work/rsync/tree" && mkdir "$work/rsync/tree"
# Content that differs under equal length and time is found by checksums alone.
choose -type f -size +1
from=$chosen
touch -r "$from" "$work/time"
printf '\252\125' | dd of="$from" conv=notrunc status=none
touch -r "$work/time" "$from"
round checksum --delete --checksum

# Patterns leave out what they leave out of the copy of rsync.
expected=$work/rsync/tree
round patterns --delete-excluded '--include=/docs/***' '--exclude=*.md' '--exclude=/odd/*link*' --exclude=tests/ \
    '--exclude=cr?tes/**/s[r-s]c'

kill -TERM "$server"
wait "$server" || fail "the server did not stop in order: $(cat "$work/serve.log")"
server=
objects=$(find "$source" | wc -l)
[ "$differ" -eq 0 ] || fail "$differ of $((held + differ)) checks found a difference"
echo "sync-against-rsync: $held checks held, $((rounds + 2)) rounds, $objects objects"
