//! Headers of RPC-over-RDMA: generated types against the codec of `rpcrdma_proto`, on all recordings of Linux.

use bytes::BytesMut;
use rpcrdma_capture::exchange::Exchanges;
use rpcrdma_capture::{linux, text};
use rpcrdma_oncrpc::rpcbind;
use rpcrdma_proto::wire::Codec as _;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_xdrgen_tests::rpcrdma1::{RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaErrvers, vers1};
use rpcrdma_xdrgen_tests::{rpcrdma2_p1, rpcrdma2_p2, rpcrdma2_p3};

use crate::{octets, value, words};

#[test]
fn headers_of_linux_have_equal_octets() {
    let (mut inline, mut chunks, mut long) = (0, 0, 0);
    for (_, recording) in linux::IWARP.iter().chain(linux::ROCE) {
        for session in text::read(recording).unwrap() {
            let all = Exchanges::of(&session).all;
            for part in all.iter().flat_map(|exchange| std::iter::once(&exchange.call).chain(&exchange.reply))
            {
                let mut bytes = BytesMut::new();
                V1.encode(&part.header, &mut bytes);
                let header: RdmaMsg = value(bytes.clone().freeze()).unwrap();
                assert_eq!(octets(&header), bytes);
                assert_eq!((header.rdma_xid, header.rdma_vers), (part.header.xid, 1));
                match header.rdma_body {
                    RdmaBody::Msg(lists) if lists.rdma_reads.is_empty() && lists.rdma_writes.is_empty() => {
                        inline += 1;
                    }
                    RdmaBody::Msg(_) => chunks += 1,
                    RdmaBody::Nomsg(_) => long += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!((inline, chunks, long), (858, 78, 39));
}

#[test]
fn errors_and_done() {
    let header = |rdma_body| RdmaMsg { rdma_xid: 7, rdma_vers: 1, rdma_credit: 32, rdma_body };
    let range = RpcRdmaErrvers { rdma_vers_low: 1, rdma_vers_high: 2 };
    let version = header(RdmaBody::Error(RpcRdmaError::Vers(range)));
    assert_eq!(octets(&version), words(&[7, 1, 32, 4, 1, 1, 2]));
    assert_eq!(octets(&header(RdmaBody::Error(RpcRdmaError::Chunk))), words(&[7, 1, 32, 4, 2]));
    assert_eq!(octets(&header(RdmaBody::Done)), words(&[7, 1, 32, 3]));
    assert_eq!((vers1::PROGRAM, vers1::VERSION), (100_417, 1));
}

/// The three profiles of Version Two have structures of their own.
#[test]
fn profiles_of_version_two() {
    let optional = rpcrdma2_p1::Rpcrdma2Optional {
        rdma_optdir: rpcrdma2_p1::MsgType::Reply,
        rdma_opttype: 9,
        rdma_optinfo: bytes::Bytes::from_static(&[1]),
    };
    assert_eq!(octets(&rpcrdma2_p1::Rpcrdma2Body::Optional(optional)), words(&[5, 1, 9, 1, 0x0100_0000]));
    let properties = rpcrdma2_p2::Rpcrdma2Propsubset(vec![1, 2]);
    assert_eq!(octets(&properties), words(&[2, 1, 2]));
    let error = rpcrdma2_p3::Rpcrdma2HdrError::ReplyResource(100);
    assert_eq!(octets(&error), words(&[10, 100]));
    let other = rpcrdma2_p3::Rpcrdma2HdrError::Default(100);
    assert_eq!(octets(&other), words(&[100]));
}

/// rpcbind's types are the hand-written ones.
#[test]
fn messages_of_rpcbind() {
    use rpcrdma_xdrgen_tests::{portmap, rpcbind as generated};
    let mapping = rpcbind::Mapping { program: 1, version: 2, protocol: 6, port: 4 };
    let list = octets(&rpcbind::MappingList(vec![mapping; 3]));
    let read: portmap::Pmaplist = value(list.clone()).unwrap();
    assert_eq!((read.0.len(), read.0[0].map.prot, octets(&read)), (3, portmap::IPPROTO_TCP, list));
    let entry = rpcbind::Rpcb {
        program: 1,
        version: 2,
        netid: "tcp".into(),
        address: "127.0.0.1.0.111".into(),
        owner: "superuser".into(),
    };
    let list = octets(&rpcbind::RpcbList(vec![entry; 2]));
    let read: generated::RpcblistPtr = value(list.clone()).unwrap();
    assert_eq!((read.0.len(), octets(&read)), (2, list));
    let entry = rpcbind::RpcbEntry {
        address: "127.0.0.1.0.111".into(),
        netid: "tcp".into(),
        semantics: 3,
        protocol_family: "inet".into(),
        protocol: "tcp".into(),
    };
    let list = octets(&rpcbind::RpcbEntryList(vec![entry; 2]));
    let read: generated::RpcbEntryListPtr = value(list.clone()).unwrap();
    assert_eq!((read.0.len(), octets(&read)), (2, list));
    let address = octets(&rpcbind::AddressText("127.0.0.1.0.111".into()));
    let read: generated::GetaddrResults = value(address.clone()).unwrap();
    assert_eq!(octets(&read), address);
}
