#!/usr/bin/env bash
# Makes the machine of the interoperability suite from Debian packages: build.sh DIR
#
# DIR gets vmlinuz, initrd.img, disk.img (ext4, never written: QEMU runs on a snapshot of it) and facts (KEY=VALUE lines about
# what is inside). Needs root (for debootstrap) and apt; `build.sh --check` only says what is missing.
# Release, mirror and kernel are those of the Debian that it runs on; nothing is installed but the packages listed below.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# What the host needs: the emulator, what builds the image, what shows a trace of a failure, and the KDC of the Kerberos
# realm. The suite runs the KDC itself, in its own network and with its own files.
host_packages=(qemu-system-x86 seabios busybox-static debootstrap e2fsprogs cpio kmod xz-utils gcc make python3 iproute2 tcpdump tshark
    krb5-kdc krb5-admin-server krb5-user)

# What the guest gets beside debootstrap's minimal system.
guest_packages=(nfs-common nfs-kernel-server rpcbind rdma-core ibverbs-providers librdmacm1 rdmacm-utils perftest iproute2 kmod tcpdump python3 procps strace
    netbase attr acl ethtool krb5-user
    fio dbench dmsetup e2fsprogs
    systemd systemd-container dbus)

# Modules of the stock kernel that the guest gets, each with all that it depends on. What is built in is fine too.
guest_modules=(virtio_pci virtio_blk virtio_net virtio_rng 9p 9pnet_virtio ext4 crc32c_generic crc32c_intel
    siw rdma_rxe rpcrdma rdma_ucm ib_uverbs nfs nfsv3 nfsv4 nfsd lockd auth_rpcgss overlay tcp_diag inet_diag
    rpcsec_gss_krb5 cts # the crypto layer asks for cts by name
    nf_tables nft_reject_ipv4 nft_ct sch_netem sch_tbf veth
    loop dm_mod dm_flakey
    crc32_generic crc32_pclmul) # rdma_rxe asks the crypto layer for CRC-32
initrd_modules=(virtio_pci virtio_blk crc32c_generic ext4)

say() { echo "machine: $*"; }
fail() {
    echo "machine: $*" >&2
    exit 1
}
# Runs a command quietly; shows the end of what it said if it fails.
quietly() {
    local log=$work/log.$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 25 "$log" >&2; fail "failed: $*"; }
}

missing_host_packages() {
    local package
    for package in "${host_packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

check() {
    local problems=0 missing
    [ "$(uname -m)" = x86_64 ] || { echo "the machine is built for x86-64, this is $(uname -m)"; problems=1; }
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || {
        echo "no apt here: the machine is made of Debian packages; run the suite on Debian, for example in a container"
        return 1
    }
    [ -c /dev/net/tun ] || { echo "no /dev/net/tun: the guest's network device is one end of it; load the module tun"; problems=1; }
    [ "$(id -u)" != 0 ] || unshare --net sh -c ': <>/dev/net/tun' 2>/dev/null || {
        echo "no right to make network namespaces and devices in them; a container needs CAP_SYS_ADMIN, CAP_NET_ADMIN and /dev/net/tun"
        problems=1
    }
    [ "$(id -u)" = 0 ] || { echo "not root: debootstrap, captures and a server that acts for users need it; run as root"; problems=1; }
    missing=$(missing_host_packages | tr '\n' ' ')
    if [ -n "$missing" ] && [ "$(id -u)" != 0 ]; then
        echo "packages are missing; as root: apt-get install --no-install-recommends $missing"
        problems=1
    fi
    return "$problems"
}

install_host_packages() {
    local missing
    mapfile -t missing < <(missing_host_packages)
    if [ "${#missing[@]}" -gt 0 ] || ! apt-cache show "$kernel_meta" >/dev/null 2>&1; then
        say "installing ${missing[*]:-package lists}"
        quietly apt-update apt-get update
        [ "${#missing[@]}" -eq 0 ] || quietly apt-install apt-get install -y --no-install-recommends "${missing[@]}"
    fi
}

# The current kernel of this Debian release: its image unpacked, its headers installed, its source fetched.
fetch_kernel() {
    local image
    image=$(apt-cache depends "$kernel_meta" | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }')
    [ -n "$image" ] || fail "apt knows no kernel image for $kernel_meta; is there a Debian mirror in /etc/apt?"
    release=${image#linux-image-}
    series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$release")
    mkdir -p "$work/deb"
    (cd "$work/deb" && rm -f ./*.deb && quietly apt-download apt-get download "$image" "linux-source-$series")
    quietly apt-headers apt-get install -y --no-install-recommends "linux-headers-$release"
    version=$(dpkg-deb -f "$work/deb/$image"_*.deb Version)
    local source_version
    source_version=$(dpkg-deb -f "$work/deb/linux-source-$series"_*.deb Version)
    [ "$version" = "$source_version" ] || say "note: the kernel is $version, its source $source_version"
    rm -rf "$work/kernel"
    dpkg-deb -x "$work/deb/$image"_*.deb "$work/kernel"
    # A merged /usr in newer releases.
    modules=$(find "$work/kernel" -path "*lib/modules/$release" -type d -print -quit)
    [ -n "$modules" ] || fail "$image holds no modules"
    cp "$work/kernel/boot/vmlinuz-$release" "$out/vmlinuz"
    say "kernel $release ($version)"
}

# Debian builds every part of RDMA but siw; the driver is compiled from the same kernel's source, unchanged.
build_siw() {
    local driver=linux-source-$series/drivers/infiniband/sw/siw
    rm -rf "$work/source"
    mkdir "$work/source"
    dpkg-deb --fsys-tarfile "$work/deb/linux-source-$series"_*.deb |
        tar -xO "./usr/src/linux-source-$series.tar.xz" |
        tar -C "$work/source" -xJ --wildcards "$driver/*"
    quietly siw make -C "/usr/src/linux-headers-$release" M="$work/source/$driver" CONFIG_RDMA_SIW=m modules
    strip --strip-debug "$work/source/$driver/siw.ko"
    install -D -m 644 "$work/source/$driver/siw.ko" "$modules/updates/siw.ko"
    depmod -b "${modules%/lib/modules/*}" "$release"
    say "siw compiled"
}

bootstrap_guest() {
    local mirror codename
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v codename="$codename" '$1 == codename && $2 == "main" { print $3; exit }')
    [ -n "$mirror" ] || fail "apt has no mirror for Debian $codename"
    rm -rf "$root"
    quietly debootstrap debootstrap --variant=minbase --include="$(IFS=,; echo "${guest_packages[*]}")" \
        "$codename" "$root" "$mirror"
    rm -rf "$root"/var/{cache/apt,lib/apt/lists}/* "$root"/usr/share/{doc,man,locale,info}/*
    say "Debian $codename in $(du -sm "$root" | cut -f 1) MiB"
}

# Lists the files of modules with their dependencies, in the order in which they load.
module_files() {
    local module
    for module in "$@"; do
        modprobe -d "${modules%/lib/modules/*}" -S "$release" --show-depends "$module" ||
            fail "the kernel has no module $module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

install_modules() {
    local file target=$root/lib/modules/$release
    rm -rf "$target"
    mkdir -p "$target"
    module_files "${guest_modules[@]}" | while read -r file; do
        install -D -m 644 "$file" "$target/${file#*"/lib/modules/$release/"}"
    done
    cp "$modules"/modules.{builtin,builtin.modinfo,order} "$target/"
    depmod -b "$root" "$release"
}

furnish_guest() {
    install -m 755 "$here/init" "$root/sbin/interop-init"
    mkdir -p "$root/job" "$root/export"
    ln -sf ../proc/self/mounts "$root/etc/mtab" # rpc.mountd dies without it
    echo guest >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n10.0.2.15 guest\n10.0.2.2 host\n' >"$root/etc/hosts"
    : >"$root/etc/resolv.conf"
}

# Just enough to find the disk.
build_initrd() {
    local tree=$work/initrd file
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,modules,dev,root}
    cp "$(command -v busybox)" "$tree/bin/busybox"
    module_files "${initrd_modules[@]}" | while read -r file; do
        cp "$file" "$tree/modules/"
        basename "$file" >>"$tree/modules/list"
    done
    cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
while read -r file; do
    case $file in
    *.xz) $b unxz -c "/modules/$file" >/modules/plain.ko && $b insmod /modules/plain.ko ;;
    *) $b insmod "/modules/$file" ;;
    esac
done </modules/list
tries=0
until $b mount -t ext4 -o noatime /dev/vda /root 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || $b poweroff -f
    $b usleep 50000
done
$b mount --move /dev /root/dev
exec $b switch_root /root /sbin/interop-init
INIT
    chmod 755 "$tree/init"
    (cd "$tree" && find . | cpio --create --format newc --quiet) | gzip -1 >"$out/initrd.img"
}

build_disk() {
    rm -f "$out/disk.img"
    truncate -s 3G "$out/disk.img"
    quietly mkfs mkfs.ext4 -q -F -O '^has_journal' -E lazy_itable_init=1,root_owner=0:0 -d "$root" "$out/disk.img"
}

if [ "${1:-}" = --check ]; then
    check
    exit
fi
[ $# = 1 ] || fail "usage: build.sh DIR | build.sh --check"
check >&2 || exit 1
kernel_meta=linux-image-amd64
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$out/work
root=$work/root
mkdir -p "$work"
install_host_packages
fetch_kernel
build_siw
bootstrap_guest
install_modules
furnish_guest
build_initrd
build_disk
printf 'KERNEL=%s\nVERSION=%s\nDEBIAN=%s\n' "$release" "$version" "$(. /etc/os-release && echo "$VERSION_CODENAME")" >"$out/facts"
rm -rf "$work"/{root,source,kernel,initrd,deb}
say "done, $(du -sm "$out/disk.img" | cut -f 1) MiB of disk"
