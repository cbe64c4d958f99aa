//! ONC RPC (RFC 5531) messages, programs, reply cache, record marking and rpcbind, sans I/O
