# Runs Debian's systemd in a container of the guest, on the guest's network and with our command installed as docs/serving.md
# does it:
#   service.sh run             the container, until its systemd powers off; knfsd ends, whose ports the units have
#   service.sh in COMMAND...   a command in the container, when its systemd is up
# The host leaves the command in /job/rpcrdma, and the units with serve.toml in /job/systemd. /srv of the container is
# /srv/service of the guest, on its disk. The rest of the container is the guest's root under an overlay that ends with it.
set -e

# Process 1 of the container, as the guest numbers it.
leader() {
    local status pid inner other
    for status in /proc/[0-9]*/status; do
        read -r _ pid inner other < <(grep ^NSpid: "$status" 2>/dev/null) || continue
        [ "$inner" = 1 ] && [ -z "$other" ] && [ "$(readlink -f "/proc/$pid/exe")" = /usr/lib/systemd/systemd ] && echo "$pid" && return
    done
    return 1
}

in_container() {
    nsenter --target "$1" --mount --uts --ipc --pid --cgroup --root --wd "${@:2}"
}

case $1 in
run)
    if [ "$(cat /proc/fs/nfsd/threads 2>/dev/null || echo 0)" != 0 ]; then
        rpc.nfsd 0
        kill "$(pidof rpc.mountd)"
    fi
    rm -rf /srv/service
    mkdir -p /srv/service/{data,more}
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/service
    echo $$ >/sys/fs/cgroup/service/cgroup.procs
    exec unshare --mount bash "$0" boot
    ;;
boot)
    place=/run/service
    root=$place/root
    mkdir -p "$place"
    mount -t tmpfs -o mode=755 service "$place"
    mkdir "$place/upper" "$place/work" "$root"
    mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" service "$root"
    # The guest's own services stay out; this is not the first boot.
    rm -rf "$root"/etc/systemd/system/*.wants
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    touch "$root/etc/.updated" "$root/var/.updated"
    for unit in systemd-{udevd,udev-trigger,random-seed,update-utmp,logind}.service systemd-udevd-{control,kernel}.socket \
        dbus.service dbus.socket; do
        ln -s /dev/null "$root/etc/systemd/system/$unit"
    done
    install -m 755 /job/rpcrdma "$root/usr/bin/"
    install -d "$root/etc/rpcrdma"
    install -m 644 /job/systemd/serve.toml "$root/etc/rpcrdma/"
    install -m 644 /job/systemd/*.service /job/systemd/*.socket "$root/etc/systemd/system/"
    # Filters and rights are those of the unit alone.
    SYSTEMD_SECCOMP=0 exec systemd-nspawn --quiet --boot --directory="$root" --machine=service --register=no --keep-unit \
        --capability=all --bind=/srv/service:/srv --link-journal=no --resolv-conf=off --timezone=off \
        -- --unit=basic.target
    ;;
in)
    shift
    for _ in $(seq 600); do
        if pid=$(leader) && [ "$(in_container "$pid" systemctl is-active basic.target 2>/dev/null)" = active ]; then
            in_container "$pid" "$@"
            exit
        fi
        sleep 0.1
    done
    echo "no systemd came up in the container"
    exit 1
    ;;
esac
