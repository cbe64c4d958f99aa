//! The contract between RPC-over-RDMA and an RDMA provider
