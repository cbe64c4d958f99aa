# Sets the MTU of the guest's network interface, and what netem does to the packets that the guest sends:
# link.sh MTU [OPTION OF NETEM]...
set -e
netdev=$(ip -o route get 10.0.2.2 | sed 's/.* dev \([^ ]*\).*/\1/')
mtu=$1
shift
if [ $# = 0 ]; then
    tc qdisc delete dev "$netdev" root 2>/dev/null || true
    segments=65535
else
    modprobe sch_netem
    tc qdisc replace dev "$netdev" root netem "$@"
    # One packet at a time is lost, not the 64 KiB that the interface would cut into packets.
    segments=1
fi
ip link set "$netdev" mtu "$mtu" gso_max_segs "$segments"
