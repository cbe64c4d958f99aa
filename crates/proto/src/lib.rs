//! RPC-over-RDMA protocol engine, sans I/O
