//! NFS version 3 and MOUNT over RPC-over-RDMA: server, client and file systems
