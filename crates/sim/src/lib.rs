//! In-process RDMA fabric on a virtual clock, with faults
