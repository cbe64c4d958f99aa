//! Worked examples of Version One messages, byte for byte. Addresses, handles and credits are invented.

/// A1: Smallest Call: NFSv3 NULL, RDMA_MSG.
pub(super) const A1: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 00 00 00 00 02 \
    00 01 86 a3 00 00 00 03 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
";

/// A2: Its Reply, 16 credits granted.
pub(super) const A2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 01 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 \
";

/// B: NFSv3 WRITE of 6001 bytes: one read chunk of 2 segments at Position 96.
pub(super) const B: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 60 \
    00 00 10 01 00 00 10 00 00 00 7f 00 00 00 10 00 \
    00 00 00 01 \
    00 00 00 60 \
    00 00 10 02 00 00 07 71 00 00 7f 00 00 00 90 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 00 00 00 00 02 \
    00 01 86 a3 00 00 00 03 00 00 00 07 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 20 a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aa ab \
    ac ad ae af b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 ba bb \
    bc bd be bf \
    00 00 00 00 00 00 00 00 \
    00 00 17 71 \
    00 00 00 02 \
    00 00 17 71 \
";

/// C1: NFSv3 READ of 8192: write list with 1 chunk of 2 segments.
pub(super) const C1: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 02 \
    00 00 20 01 00 00 10 00 00 00 7f 00 00 01 00 00 \
    00 00 20 02 00 00 10 00 00 00 7f 00 00 02 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 00 00 00 00 02 \
    00 01 86 a3 00 00 00 03 00 00 00 06 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 20 a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aa ab \
    ac ad ae af b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 ba bb \
    bc bd be bf \
    00 00 00 00 00 00 00 00 \
    00 00 20 00 \
";

/// C2: Reply to it, 5000 bytes read, lengths rewritten (4096 + 904).
pub(super) const C2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 02 \
    00 00 20 01 00 00 10 00 00 00 7f 00 00 01 00 00 \
    00 00 20 02 00 00 03 88 00 00 7f 00 00 02 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 01 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 13 88 \
    00 00 00 01 \
    00 00 13 88 \
";

/// C3: Lists of the reply when the READ failed (unused write chunk), after the fixed 16 bytes.
pub(super) const C3: &str = "\
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 02 \
    00 00 20 01 00 00 00 00 00 00 7f 00 00 01 00 00 \
    00 00 20 02 00 00 00 00 00 00 7f 00 00 02 00 00 \
    00 00 00 00 \
    00 00 00 00 \
";

/// D1: READDIR Call with a reply chunk of 1 segment, 32768 bytes (RPC arguments cut off).
pub(super) const D1: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 01 \
    00 00 30 01 00 00 80 00 00 00 7f 00 00 03 00 00 \
    11 22 33 44 \
    00 00 00 00 00 00 00 02 \
    00 01 86 a3 00 00 00 03 00 00 00 10 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
";

/// D2: Long Reply: 5320 bytes were RDMA Written, then this Send (48 bytes).
pub(super) const D2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 01 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 01 \
    00 00 30 01 00 00 14 c8 00 00 7f 00 00 03 00 00 \
";

/// E: Long Call: Position-zero read chunk.
pub(super) const E: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 01 \
    00 00 00 01 \
    00 00 00 00 \
    00 00 40 01 00 00 07 d0 00 00 7f 00 00 04 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
";

/// F1: RDMA_ERROR / ERR_VERS, for a request with version 9, supported range 1..1.
pub(super) const F1: &str = "\
    11 22 33 44 \
    00 00 00 09 \
    00 00 00 10 \
    00 00 00 04 \
    00 00 00 01 \
    00 00 00 01 \
    00 00 00 01 \
";

/// F2: RDMA_ERROR / ERR_CHUNK.
pub(super) const F2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 04 \
    00 00 00 02 \
";

/// H: RDMA_MSGP header, align 4096, threshold 1024, and the first word of the RPC message.
pub(super) const H: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 02 \
    00 00 10 00 \
    00 00 04 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
";

/// I: RDMA_DONE.
pub(super) const I: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 03 \
";

/// J1: A Read chunk of 6001 bytes at Position 96, its pad marked by the discriminator 2 at the same Position.
pub(super) const J1: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 60 \
    00 00 10 01 00 00 17 71 00 00 7f 00 00 00 80 00 \
    00 00 00 02 \
    00 00 00 60 \
    00 00 10 03 00 00 00 03 00 00 7f 00 00 00 97 71 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
";

/// J2: J1 with the pad at the Position behind the data.
pub(super) const J2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 60 \
    00 00 10 01 00 00 17 71 00 00 7f 00 00 00 80 00 \
    00 00 00 02 \
    00 00 17 d1 \
    00 00 10 03 00 00 00 03 00 00 7f 00 00 00 97 71 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
";

/// K1: Reply to a READ of 5001 bytes, exposed in a Read chunk at Position 28 (RFC 5666 §3.8).
pub(super) const K1: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 00 \
    00 00 00 01 \
    00 00 00 1c \
    00 00 50 01 00 00 13 89 00 00 7f 00 00 05 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 01 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 \
    00 00 13 89 \
";

/// K2: Long reply of 9032 bytes, exposed in a Position-Zero Read chunk (RFC 5666 §5.1).
pub(super) const K2: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 10 \
    00 00 00 01 \
    00 00 00 01 \
    00 00 00 00 \
    00 00 60 01 00 00 23 48 00 00 7f 00 00 06 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
";

/// L: RDMA_MSGP with 16 bytes before 9 bytes of opaque data, which therefore begin at 96 (RFC 5666 §3.9).
pub(super) const L: &str = "\
    11 22 33 44 \
    00 00 00 01 \
    00 00 00 20 \
    00 00 00 02 \
    00 00 00 20 \
    00 00 00 08 \
    00 00 00 00 \
    00 00 00 00 \
    00 00 00 00 \
    11 22 33 44 \
    00 00 00 00 00 00 00 02 \
    20 00 00 01 00 00 00 01 00 00 00 03 \
    00 00 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 \
    00 00 00 09 \
    ee ee ee ee ee ee ee ee ee ee ee ee ee ee ee ee \
    a0 a1 a2 a3 a4 a5 a6 a7 a8 00 00 00 \
";
