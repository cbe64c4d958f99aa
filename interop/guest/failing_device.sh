# Runs our server on a file system whose device fails and heals (failing_device.py says when): failing_device.sh
# The file system has no journal, so that lost data does not end it. Few descriptors make the server close files that have
# uncommitted data.
set -e
state=/tmp/failing
mkdir -p "$state/mnt"
modprobe -a loop dm_mod dm_flakey
truncate -s 200M "$state/disk"
loop=$(losetup --find --show "$state/disk")
sectors=$(blockdev --getsz "$loop")
dmsetup create failing --table "0 $sectors linear $loop 0"
# There is no udev here.
dmsetup mknodes

cat >"$state/device" <<END
#!/bin/sh -e
case \$1 in
fail) table="0 $sectors flakey $loop 0 0 600 1 error_writes" ;;
heal) table="0 $sectors linear $loop 0" ;;
esac
dmsetup reload failing --table "\$table"
dmsetup suspend --nolockfs --noflush failing
dmsetup resume failing
END
chmod 755 "$state/device"

mkfs.ext4 -q -O ^has_journal /dev/mapper/failing
mount /dev/mapper/failing "$state/mnt"
(
    ulimit -n 128
    exec /job/rpcrdma serve --listen 127.0.0.1:20050 --tcp 127.0.0.1:20051 --state "$state/server" \
        --export "/=$state/mnt,squash=none" --json >"$state/ready" 2>"$state/log"
) &
server=$!
finish() {
    kill "$server" && wait "$server" || :
    umount "$state/mnt"
    dmsetup remove failing
    losetup -d "$loop"
    tail -n 5 "$state/log" >&2
    rm -rf "$state"
}
trap finish EXIT
for _ in $(seq 200); do
    grep -q rdma "$state/ready" && break
    sleep 0.05
done
python3 -B /job/guest/failing_device.py 127.0.0.1 20051 "$state/device"
