# Makes siw0 or rxe0 the only RDMA device of the guest, on its network interface: fabric.sh siw|rxe|none
# With `none`, a device on the loopback interface stays: librdmacm closes a device that is gone only if there is another one.
set -e
netdev=$(ip -o route get 10.0.2.2 | sed 's/.* dev \([^ ]*\).*/\1/')
modprobe -a rdma_ucm ib_uverbs
if [ "$1" = none ]; then
    modprobe siw
    [ -e /sys/class/infiniband/other0 ] || rdma link add other0 type siw netdev lo
fi
for device in siw0 rxe0; do
    [ "$device" = "${1}0" ] || [ ! -e "/sys/class/infiniband/$device" ] || rdma link delete "$device"
done
[ "$1" != none ] || exit 0
case $1 in
siw) modprobe siw ;;
rxe) modprobe rdma_rxe ;;
esac
[ -e "/sys/class/infiniband/${1}0" ] || rdma link add "${1}0" type "$1" netdev "$netdev"
[ ! -e /sys/class/infiniband/other0 ] || rdma link delete other0
for _ in $(seq 100); do
    grep -q ACTIVE "/sys/class/infiniband/${1}0/ports/1/state" && exit 0
    sleep 0.02
done
exit 1
