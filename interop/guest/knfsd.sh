# Starts the kernel's NFS server in the guest (once; later calls change nothing): TCP 2049, RDMA 20049, mountd on 20048.
# Exports: /export, on the disk, and /export/memory, a tmpfs.
set -e
[ "$(cat /proc/fs/nfsd/threads 2>/dev/null || echo 0)" = 0 ] || exit 0
modprobe -a nfsd rdma_ucm
mkdir -p /export/memory /var/lib/nfs/v4recovery
mountpoint -q /export/memory || mount -t tmpfs -o size=800m,mode=777 memory /export/memory
chmod 777 /export
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
pidof rpcbind >/dev/null || rpcbind -w
# `insecure`: our client does not use reserved ports.
options=rw,no_root_squash,insecure,no_subtree_check
exportfs -o "$options,fsid=1" '*:/export'
exportfs -o "$options,fsid=2" '*:/export/memory'
pidof rpc.mountd >/dev/null || rpc.mountd --port 20048
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
rpc.nfsd 4
grep -q '^rdma 20049' /proc/fs/nfsd/portlist || echo 'rdma 20049' >/proc/fs/nfsd/portlist
