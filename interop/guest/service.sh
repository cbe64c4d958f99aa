# Runs Debian's systemd in a container of the guest, on the guest's network and with our command installed as docs/serving.md
# does it:
#   service.sh clear                 ends what an earlier case has left, and knfsd, which has the same ports
#   service.sh run UNIT...           the container, with units enabled, until its systemd powers off
#   service.sh in COMMAND...         a command in the container, when its systemd is up
#   service.sh until NAME VALUE      waits for the value of a property of the service
#   service.sh files DIRECTORY ADD   waits until the writers have finished some more files
# The host leaves the command in /job/rpcrdma, and units, drop-ins and serve.toml in /job/systemd. /srv of the container is
# /srv/service of the guest, on its disk. The rest of the container is the guest's root under an overlay that ends with it.
set -e

# The number of process 1 of the container in the guest, for as long as its systemd is up.
up=/run/service.up
# The control group of all processes of the container.
group=/sys/fs/cgroup/service

in_container() {
    nsenter --target "$1" --mount --uts --ipc --pid --cgroup --root --wd "${@:2}"
}

case $1 in
clear)
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    [ ! -e "$group" ] || echo 1 >"$group/cgroup.kill"
    if [ "$(cat /proc/fs/nfsd/threads 2>/dev/null || echo 0)" != 0 ]; then
        rpc.nfsd 0
        kill "$(pidof rpc.mountd)"
    fi
    rm -rf "$up" /srv/service
    mkdir -p /srv/service/{data,more} "$group"
    ;;
run)
    echo $$ >"$group/cgroup.procs"
    exec unshare --mount bash "$0" boot "${@:2}"
    ;;
boot)
    place=/run/service
    root=$place/root
    mkdir -p "$place"
    mount -t tmpfs -o mode=755 service "$place"
    mkdir "$place/upper" "$place/work" "$root"
    mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" service "$root"
    # The guest's own services stay out, and so does what only a real boot needs. This is not the first boot.
    rm -rf "$root"/etc/systemd/system/*.wants
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    touch "$root/etc/.updated" "$root/var/.updated"
    for unit in systemd-{udevd,udev-trigger,random-seed,update-utmp,update-utmp-runlevel,logind,user-sessions}.service \
        systemd-{modules-load,remount-fs,journal-flush,tmpfiles-setup-dev}.service systemd-tmpfiles-clean.timer \
        systemd-udevd-{control,kernel}.socket systemd-ask-password-{console,wall}.path \
        modprobe@.service kmod-static-nodes.service proc-sys-fs-binfmt_misc.automount getty.target \
        dev-hugepages.mount sys-kernel-{debug,tracing,config}.mount sys-fs-fuse-connections.mount \
        dbus.service dbus.socket; do
        ln -s /dev/null "$root/etc/systemd/system/$unit"
    done
    install -m 755 /job/rpcrdma "$root/usr/bin/"
    install -d "$root/etc/rpcrdma"
    install -m 644 /job/systemd/serve.toml "$root/etc/rpcrdma/"
    install -m 644 /job/systemd/*.service /job/systemd/*.socket "$root/etc/systemd/system/"
    if [ -e /job/systemd/rpcrdma.service.d ]; then cp -r /job/systemd/rpcrdma.service.d "$root/etc/systemd/system/"; fi
    systemctl --quiet --root="$root" enable "${@:2}"
    # Filters and rights are those of the unit alone.
    SYSTEMD_SECCOMP=0 exec systemd-nspawn --quiet --boot --directory="$root" --machine=service --register=no --keep-unit \
        --capability=all --bind=/srv/service:/srv --link-journal=no --resolv-conf=off --timezone=off \
        -- --unit=multi-user.target --show-status=no
    ;;
in)
    shift
    for _ in $(seq 600); do
        if [ -e "$up" ]; then
            in_container "$(cat "$up")" "$@"
            exit
        fi
        leader=$(grep -hsE '^NSpid:\s+[0-9]+\s+1$' /proc/[0-9]*/status | awk '{ print $2 }')
        if [ -n "$leader" ] && [ "$(in_container "$leader" systemctl is-active multi-user.target 2>/dev/null)" = active ]; then
            echo "$leader" >"$up"
        else
            sleep 0.1
        fi
    done
    echo "no systemd came up in the container"
    exit 1
    ;;
until)
    for _ in $(seq 400); do
        seen=$(in_container "$(cat "$up")" systemctl show --value --property "$2" rpcrdma)
        [ "$seen" != "$3" ] || exit 0
        sleep 0.2
    done
    echo "$2 is '$seen' instead of '$3'"
    exit 1
    ;;
files)
    last() { ls "$1"/writer-* 2>/dev/null | sed -n 's/^file-//p' | sort -n | tail -n 1; }
    first=$(last "$2")
    for _ in $(seq 400); do
        [ $(($(last "$2"))) -lt $((first + $3)) ] || exit 0
        sleep 0.3
    done
    echo "the writers do not go on"
    exit 1
    ;;
esac
