//! ONC RPC over RDMA (RFC 8166) for any RPC program: client and server
