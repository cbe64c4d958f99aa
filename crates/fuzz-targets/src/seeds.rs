//! The seeds in `fuzz/seeds`: messages of the recorded sessions, and messages that the codecs make.
//!
//! `cargo run -p rpcrdma-fuzz-targets --example seeds` writes them.

use bytes::{Buf, Bytes, BytesMut};
use rpcrdma::ccp::{ConfigReply, ConfigRequest};
use rpcrdma_capture::exchange::{Exchanges, Part};
use rpcrdma_capture::linux;
use rpcrdma_capture::pcap::TcpSegment;
use rpcrdma_capture::session::{Item, Kind, Session};
use rpcrdma_capture::tcp::Side;
use rpcrdma_capture::text;
use rpcrdma_iwarp::wire::ddp::{HeaderView, Tagged, Untagged, queue};
use rpcrdma_iwarp::wire::fpdu::{CRC_LEN, FpduView, seal};
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest};
use rpcrdma_nfs::mount::{
    DirPath, ExportNode, Exports, Groups, MountBody, MountList, MountName, MountOk, MountResult, MountStatus,
};
use rpcrdma_nfs::wire::{FileHandle, NFS_PROGRAM, NFS_VERSION};
use rpcrdma_oncrpc::gss::{InitArguments, InitResults};
use rpcrdma_oncrpc::record::RecordWriter;
use rpcrdma_oncrpc::rpcbind::{AddressText, Mapping, MappingList, Rpcb, RpcbEntry, RpcbEntryList, RpcbList};
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth, ReplyHeader, auth::flavor};
use rpcrdma_proto::wire::two::transmission::{
    BufferStructure, Operation, TransmitContinuation, TransmitRequest, TransmitResponse,
};
use rpcrdma_proto::wire::two::{self, Exchange, Rest, Subset, Value};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, Header, ReadSegment, Segment, WriteChunk,
};
use rpcrdma_proto::{PrivateData, Profile};
use rpcrdma_xdr::{Decoder, Encode, Piece, Stream, encode};

use crate::iwarp::{readable_window, writable_window};
use crate::{captures, conf_rdma};

/// Longest seed of a recorded session, in bytes.
const LENGTH_MAX: usize = 3000;

/// A seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Name of the target.
    pub target: &'static str,
    /// Name of the file.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Seeds(Vec<Seed>);

impl Seeds {
    /// Adds a seed, unless the target has it already or it is empty.
    fn add(&mut self, target: &'static str, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        let seed = Seed { target, name: name.into(), bytes: bytes.into() };
        if !seed.bytes.is_empty()
            && !self.0.iter().any(|other| other.target == target && other.bytes == seed.bytes)
        {
            self.0.push(seed);
        }
    }

    /// Adds a seed of a recording, if it is not too long.
    fn record(&mut self, target: &'static str, name: String, bytes: Vec<u8>) {
        if bytes.len() <= LENGTH_MAX {
            self.add(target, name, bytes);
        }
    }
}

/// Returns all seeds. They do not depend on anything but this code and the recordings.
#[must_use]
pub fn all() -> Vec<Seed> {
    let mut seeds = Seeds::default();
    for (recording, text) in linux::IWARP {
        let sessions = text::read(text).expect("the recordings are well formed");
        for (number, session) in sessions.iter().enumerate() {
            let name = format!("{recording}-{number}");
            calls(&mut seeds, &name, session);
            streams(&mut seeds, &name, session);
            recordings(&mut seeds, &name, session);
        }
    }
    for (recording, text) in linux::ROCE {
        let sessions = text::read(text).expect("the recordings are well formed");
        for (number, session) in sessions.iter().enumerate() {
            packets(&mut seeds, &format!("{recording}-{number}"), session);
        }
    }
    headers(&mut seeds);
    transmissions(&mut seeds);
    oncrpc(&mut seeds);
    gss_calls(&mut seeds);
    gss_replies(&mut seeds);
    nfs(&mut seeds);
    fpdus(&mut seeds);
    histories(&mut seeds);
    descriptions(&mut seeds);
    seeds.0
}

fn xdr(value: &impl Encode) -> Vec<u8> {
    encode(value).expect("a value within its limits").flatten().0.to_vec()
}

/// Returns bytes behind a byte that says how many they are.
fn piece(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("a piece has at most 255 bytes");
    [&[length], bytes].concat()
}

/// Headers and RPC messages of a session; of each procedure and shape some.
fn calls(seeds: &mut Seeds, name: &str, session: &Session) {
    let mut count = std::collections::BTreeMap::new();
    for (at, exchange) in Exchanges::of(session).all.iter().enumerate() {
        let mut call = Decoder::new(exchange.call.message.clone());
        let Ok(header) = CallHeader::read(&mut call) else { continue };
        let seen = count.entry((header.program, header.procedure)).or_insert(0);
        *seen += 1;
        if *seen > 2 {
            continue;
        }
        let reply = exchange.reply.as_ref();
        for (what, part) in [("call", Some(&exchange.call)), ("reply", reply)] {
            let Some(part) = part else { continue };
            let name = format!("{name}-{at}-{what}");
            let mut bytes = BytesMut::new();
            V1.encode(&part.header, &mut bytes);
            seeds.record("v1_header", name.clone(), bytes.to_vec());
            if genuine(part) {
                seeds.record("rpc_message", name.clone(), part.message.to_vec());
            }
        }
        if (header.program, header.version) != (NFS_PROGRAM, NFS_VERSION) {
            continue;
        }
        let Some(procedure) = u8::try_from(header.procedure).ok().and_then(|number| number.checked_sub(1))
        else {
            continue;
        };
        let behind = |message: &Bytes, rest: &Decoder| message.slice(message.len() - rest.remaining()..);
        if genuine(&exchange.call) {
            let arguments = behind(&exchange.call.message, &call);
            seeds.record(
                "nfs_arguments",
                format!("{name}-{at}-call"),
                [&[procedure], &arguments[..]].concat(),
            );
        }
        if let Some(reply) = reply.filter(|reply| genuine(reply)) {
            let mut results = Decoder::new(reply.message.clone());
            if results.decode::<ReplyHeader>().is_ok() {
                let results = behind(&reply.message, &results);
                seeds.record(
                    "nfs_arguments",
                    format!("{name}-{at}-reply"),
                    [&[procedure], &results[..]].concat(),
                );
            }
        }
    }
}

fn genuine(part: &Part) -> bool {
    part.genuine && part.moved.is_empty()
}

/// Start-up frames, and the first FPDUs of each direction.
fn streams(seeds: &mut Seeds, name: &str, session: &Session) {
    for (side, from) in [("client", Side::Client), ("server", Side::Server)] {
        let items: Vec<&Item> = session.items.iter().filter(|item| item.from == from).collect();
        let mut fpdus = Vec::new();
        for item in items {
            match item.kind {
                Kind::Frame => {
                    seeds.add(
                        "iwarp_receive",
                        format!("{name}-{side}-frame"),
                        [&[0, 9], &item.bytes[..]].concat(),
                    );
                    seeds.add(
                        "private_data",
                        format!("{name}-{side}"),
                        [&[3, 3], &item.bytes[20..]].concat(),
                    );
                }
                Kind::Fpdu if fpdus.len() + item.bytes.len() <= LENGTH_MAX => {
                    fpdus.extend(unsealed(&item.bytes));
                }
                _ => {}
            }
        }
        if !fpdus.is_empty() {
            let how = if from == Side::Client { 2 | 1 << 2 } else { 2 };
            seeds.add("iwarp_receive", format!("{name}-{side}-fpdus"), [&[how, 6], &fpdus[..]].concat());
            seeds.add("iwarp_receive", format!("{name}-{side}-view"), [&[1, 0], &fpdus[..]].concat());
        }
    }
}

/// Returns an FPDU with a CRC field of 0, which the target fills in.
fn unsealed(fpdu: &[u8]) -> Vec<u8> {
    let mut bytes = fpdu.to_vec();
    if let Some(field) = bytes.last_chunk_mut::<CRC_LEN>() {
        *field = [0; CRC_LEN];
    }
    bytes
}

/// Returns the front of a session, with at most so many bytes.
fn front_of(session: &Session, bytes: usize) -> Session {
    let mut front = Session::default();
    let mut length = 0;
    for item in &session.items {
        length += item.bytes.len();
        if length > bytes {
            break;
        }
        front.items.push(item.clone());
    }
    front
}

/// The front of a session over RoCE as a pcap file and as text.
fn packets(seeds: &mut Seeds, name: &str, session: &Session) {
    let front = front_of(session, LENGTH_MAX);
    let file = captures::roce_pcap(&front, false);
    seeds.add("capture", format!("{name}.pcap"), [&[0], &file[..]].concat());
    let text = text::write("", &[front_of(session, LENGTH_MAX / 2)]);
    seeds.add("capture", format!("{name}.txt"), [b"\x01", text.as_bytes()].concat());
}

/// The front of a session as a pcap file, as text, and as a stream that is cut.
fn recordings(seeds: &mut Seeds, name: &str, session: &Session) {
    let front = front_of(session, LENGTH_MAX / 2);
    if front.items.len() < 4 {
        return;
    }
    seeds.add(
        "capture",
        format!("{name}.txt"),
        [b"\x01".as_slice(), text::write("", std::slice::from_ref(&front)).as_bytes()].concat(),
    );
    let mut due = [1_u32, 1];
    let segment = |from, sequence| captures::segment(from, false, sequence);
    let mut segments = vec![
        TcpSegment { syn: true, ack: false, ..segment(Side::Client, 0) },
        TcpSegment { syn: true, ..segment(Side::Server, 0) },
    ];
    let mut cuts = vec![2 | 1 << 3, 0, 0, 0, 0, 3];
    for item in &front.items {
        let side = usize::from(item.from == Side::Server);
        segments.push(TcpSegment { payload: item.bytes.clone(), ..segment(item.from, due[side]) });
        due[side] += u32::try_from(item.bytes.len()).expect("a short item");
        for part in item.bytes.chunks(200) {
            let how = u8::try_from(side).expect("0 or 1") | 6;
            cuts.extend(piece(&[&[how], part].concat()));
        }
    }
    let file = captures::pcap(&segments, true, false);
    seeds.add("capture", format!("{name}.pcap"), [&[0], &file[..]].concat());
    seeds.record("capture", format!("{name}.cuts"), cuts);
}

fn lists() -> ChunkLists {
    let segment = |handle, length| Segment { handle, length, offset: 0x1000 };
    ChunkLists {
        read: vec![
            ReadSegment::new(0, segment(1, 4096)),
            ReadSegment::new(128, segment(2, 65536)),
            ReadSegment::new(128, segment(3, 100)),
        ],
        write: vec![
            WriteChunk { segments: vec![segment(4, 8192), segment(5, 8192)] },
            WriteChunk { segments: vec![] },
        ],
        reply: Some(WriteChunk { segments: vec![segment(6, 4096)] }),
    }
}

/// Bodies of all kinds that both versions have, and those of Version Two.
fn bodies() -> Vec<Body> {
    let value = |id, data: &[u8]| Value { id, data: Bytes::copy_from_slice(data) };
    let values = vec![value(1, &[0, 0, 16, 0]), value(2, &[0, 0, 0, 1]), value(9, b"12345678")];
    let mut subset = Subset::default();
    subset.insert(1);
    let exchanges = [
        Exchange::Part { start: values.clone() },
        Exchange::Initial { start: values.clone(), constant: subset.clone() },
        Exchange::Request { want: values.clone() },
        Exchange::Response {
            done: subset.clone(),
            rejected: Subset::default(),
            rest: Rest::Pending(Subset::default()),
        },
        Exchange::Response { done: subset, rejected: Subset::default(), rest: Rest::Other(values.clone()) },
        Exchange::Update { now: values, clears: true },
    ];
    let operations = operations().into_iter().map(two::Body::Transmission);
    let others = [two::Body::Middle { remaining: 4000 }, two::Body::Combined(vec![64, 48]), two::Body::Grant];
    let two = exchanges.into_iter().map(two::Body::Exchange).chain(operations).chain(others).map(Body::Two);
    let one = [
        Body::Message(ChunkLists::default()),
        Body::Message(lists()),
        Body::NoMessage(lists()),
        Body::Padded { align: 64, threshold: 128, lists: ChunkLists::default() },
        Body::Done,
        Body::Error(ErrorBody::Version { low: 1, high: 2 }),
        Body::Error(ErrorBody::Chunk),
    ];
    one.into_iter().chain(two).collect()
}

fn operations() -> [Operation; 3] {
    [
        Operation::Request(TransmitRequest {
            placed: vec![],
            response: vec![],
            count: 2,
            response_buffers: 1,
            payload_len: 900,
        }),
        Operation::Response(TransmitResponse { placed: vec![], count: 1, payload_len: 400 }),
        Operation::Continuation(TransmitContinuation { number: 1, initial_type: 5, payload_len: 100 }),
    ]
}

fn headers(seeds: &mut Seeds) {
    for (number, body) in bodies().into_iter().enumerate() {
        for (name, profile) in [("p1", Profile::P1), ("p2", Profile::P2), ("p3", Profile::P3)] {
            for direction in [Direction::Call, Direction::Reply] {
                let header = Header {
                    xid: 0x0102_0304,
                    version: 2,
                    credit: 32,
                    direction: Some(direction),
                    invalidate: 0,
                    body: body.clone(),
                };
                let mut bytes = BytesMut::new();
                profile.codec().encode(&header, &mut bytes);
                bytes.extend_from_slice(&[0; 64]);
                seeds.add("v2_header", format!("{name}-{number}-{direction:?}"), bytes.to_vec());
            }
        }
        if !matches!(body, Body::Two(_)) {
            let mut bytes = BytesMut::new();
            V1.encode(&Header::v1(0x0102_0304, 32, body), &mut bytes);
            seeds.add("v1_header", format!("made-{number}"), bytes.to_vec());
        }
    }
    let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 65536 };
    // Reserved flags mean nothing, and R is clear.
    seeds.add("private_data", "reserved", [3, 3, 0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 3, 3]);
    seeds.add(
        "private_data",
        "behind-others",
        [&[15, 3, 0xf6, 0xab, 0x0e], &data.encode()[..], &[0; 9]].concat(),
    );
}

fn transmissions(seeds: &mut Seeds) {
    for (number, operation) in operations().into_iter().enumerate() {
        let mut bytes = BytesMut::new();
        operation.encode(&mut bytes);
        let kind = operation.kind() as u8;
        seeds.add("round_trips", format!("operation-{number}"), [&[kind], &bytes[..]].concat());
    }
    let structures = [
        BufferStructure::default_of(4096),
        BufferStructure::with_items(4, 8192),
        BufferStructure::behind_head(512, 2, 65536),
    ];
    for (number, structure) in structures.iter().enumerate() {
        let mut bytes = BytesMut::new();
        structure.encode(&mut bytes);
        seeds.add("round_trips", format!("structure-{number}"), [&[9], &bytes[..]].concat());
    }
}

fn oncrpc(seeds: &mut Seeds) {
    let rpcb = |netid: &'static str, address: &'static str| Rpcb {
        program: NFS_PROGRAM,
        version: 3,
        netid: netid.into(),
        address: address.into(),
        owner: "superuser".into(),
    };
    let mapping = Mapping { program: NFS_PROGRAM, version: 3, protocol: 6, port: 2049 };
    let list = RpcbList(vec![
        rpcb("tcp", "0.0.0.0.8.1"),
        rpcb("rdma6", "::.78.81"),
        rpcb("rdma", "192.0.2.7.78.81"),
    ]);
    let entry = |netid: &'static str, address: &'static str| RpcbEntry {
        address: address.into(),
        netid: netid.into(),
        semantics: 3,
        protocol_family: "inet".into(),
        protocol: "rdma".into(),
    };
    let entries = RpcbEntryList(vec![entry("tcp", "192.0.2.7.8.1"), entry("rdma", "0.0.0.0.78.81")]);
    let address = AddressText("2001:db8::7.78.81".into());
    let messages = [
        ("mapping", xdr(&mapping)),
        ("rpcb", xdr(&rpcb("tcp6", "::1.8.1"))),
        ("mappings", xdr(&MappingList(vec![mapping, Mapping { port: 111, ..mapping }]))),
        ("list", xdr(&list)),
        ("entries", xdr(&entries)),
        ("address", xdr(&address)),
        ("text", b"192.0.2.7.203.81".to_vec()),
    ];
    for (choice, (name, bytes)) in (0..).zip(&messages) {
        seeds.add("rpcbind", *name, [&[choice], &bytes[..]].concat());
    }
    let answers = [
        ("tcp", 0, xdr(&AddressText("0.0.0.0.8.1".into()))),
        ("tcp-port", 0, xdr(&2049_u32)),
        ("tcp6", 1, xdr(&address)),
        ("rdma", 2, xdr(&entries)),
        ("rdma6", 3, xdr(&list)),
    ];
    for (name, netid, answer) in answers {
        seeds.add("rpcbind", format!("lookup-{name}"), [&[7 | netid << 3], &answer[..]].concat());
    }

    let mut writer = RecordWriter::new();
    for (length, fragment) in [(24, 100), (40, 9), (0, 1), (200, 64)] {
        let mut message = Stream::default();
        message.push(Piece::Inline(Bytes::from(vec![b'm'; length])));
        writer.push_fragments(&message, fragment);
    }
    let stream = writer.copy_to_bytes(writer.remaining());
    for (name, front) in [("all", [255, 31, 6, 40]), ("long", [11, 31, 1, 1]), ("many", [255, 3, 60, 200])] {
        seeds.add("records", name, [&front, &stream[..]].concat());
    }

    let request = ConfigRequest { max_call_send_size: 4096, max_reply_send_size: 4096, max_rdma_read: 8 };
    let reply = ConfigReply { max_call_send_size: 4096, align: 64, max_rdma_read: 8 };
    seeds.add("conf_rdma", "request", xdr(&request));
    seeds.add("conf_rdma", "reply", xdr(&reply));
    let private = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 }.encode();
    let question = [&[0], &xdr(&request)[..]].concat();
    let other = [&[0], &xdr(&ConfigRequest { max_rdma_read: 9, ..request })[..]].concat();
    let null = conf_rdma::call(0, &[]).to_vec();
    let nfs = |procedure| {
        let body = gss_credential(procedure, &[]).into();
        let header = CallHeader {
            // A piece that begins with 0 is a question.
            xid: 7 << 24,
            program: NFS_PROGRAM,
            version: NFS_VERSION,
            procedure: 0,
            credential: OpaqueAuth { flavor: flavor::RPCSEC_GSS, body },
            verifier: OpaqueAuth::none(),
        };
        xdr(&header)
    };
    let (creation, data) = (nfs(1), nfs(0));
    for (name, messages) in [
        ("question", vec![&question, &question, &other]),
        ("null", vec![&null, &question]),
        ("other", vec![&other, &null]),
        ("context", vec![&creation, &creation, &question]),
        ("late", vec![&creation, &data, &question]),
    ] {
        let messages: Vec<u8> = messages.into_iter().flat_map(|message| piece(message)).collect();
        seeds.add("conf_rdma", name, [&[7, 3], &piece(&private)[..], &messages].concat());
    }
}

/// Returns the body of a credential of RPCSEC_GSS.
fn gss_credential(procedure: u32, handle: &[u8]) -> Vec<u8> {
    let length = u32::try_from(handle.len()).expect("a short handle");
    let mut body: Vec<u8> = [1, procedure, 1, 1, length].into_iter().flat_map(u32::to_be_bytes).collect();
    body.extend_from_slice(handle);
    body
}

/// Histories of a server of RPCSEC_GSS: decisions, each of a byte, and pieces.
fn gss_calls(seeds: &mut Seeds) {
    let (begin, go_on, changed_step, exchange, call) = (0, 1, 2, 3, 4);
    let (deliver, twice, changed, any, end, time, flag) = (5, 6, 7, 8, 9, 10, 11);
    let create = [begin, 3, go_on, 0, 1];
    let exchanges: Vec<u8> = (0..3).flat_map(|service| [exchange, 0, service, 2, 7, 8]).collect();
    let calls: Vec<u8> = (0..3).flat_map(|service| [call, 0, service, 2, 7, 8]).collect();
    let credential =
        |procedure, handle: &[u8]| [&[any][..], &piece(&gss_credential(procedure, handle))].concat();
    let token = piece(&xdr(&InitArguments { token: Bytes::from_static(&[1, 1, b'a']) }));
    let any_calls = [
        &credential(1, &[])[..],
        &[0, 0],
        &token,
        &[4],
        &credential(2, &[7; 16]),
        &[0, 0],
        &token,
        &[4],
        &credential(0, &[7; 16]),
        &[3],
        &piece(&[9; 8]),
        &[0, 1],
    ];
    let repeats = [deliver, 0, deliver, 0, twice, 1, changed, 2, 0, 90, 1, 0, deliver, 2];
    let many: Vec<u8> = (0..9).flat_map(|user| [begin, user, go_on, 0, user]).collect();
    let histories: [(&str, u8, Vec<u8>); 9] = [
        ("exchanges", 0, [&create[..], &exchanges].concat()),
        ("two-calls", 1, [&create[..], &[go_on, 0, 1], &exchanges].concat()),
        ("three-calls", 2, [&create[..], &[go_on, 0, 1, go_on, 0, 1], &exchanges].concat()),
        ("repeats", 0, [&create[..], &calls, &repeats].concat()),
        ("changed", 0, [&[begin, 3, changed_step, 0, 1, 0, 7, 1, 0, 2, 1], &create[..], &exchanges].concat()),
        ("any", 0, [&any_calls.concat()[..], &create, &exchanges].concat()),
        ("end", 0, [&create[..], &calls, &[end, 0, deliver, 3, deliver, 0], &exchanges].concat()),
        ("time", 1, [&many[..], &[time, 11], &create, &[go_on, 0, 1, time, 200], &exchanges].concat()),
        ("flags", 0, [&create[..], &[flag, 0], &exchanges, &[flag, 1], &exchanges].concat()),
    ];
    for (name, rounds, decisions) in histories {
        seeds.add("gss_server", name, [&[rounds], &decisions[..]].concat());
    }
}

/// Replies to a client of RPCSEC_GSS.
fn gss_replies(seeds: &mut Seeds) {
    let results = InitResults {
        handle: Bytes::from_static(&[5; 16]),
        major: 1,
        minor: 0,
        window: 128,
        token: Bytes::from_static(b"\x01\x02nfs@server"),
    };
    let messages = [
        ("arguments", 0, xdr(&InitArguments { token: Bytes::from_static(b"token") })),
        ("results", 1, xdr(&results)),
        ("credential", 2, gss_credential(3, &[7; 16])),
        ("one-call", 3, vec![0]),
        ("two-calls", 4, vec![0, 0]),
        ("three-calls", 5, vec![0, 0, 0]),
        ("changed-window", 3, vec![1, 0, 31, 1]),
        ("changed-verifier", 3, vec![2, 0, 9, 1]),
        ("made", 4, [&[3][..], &piece(&xdr(&results)), &[0, 0]].concat()),
        ("replies", 6, (0..3).flat_map(|service| [service, 2, 7, 8, 0]).collect()),
        ("changed-replies", 6, (0..3).flat_map(|service| [service, 2, 7, 8, 1, 0, 40, 1]).collect()),
        ("other-results", 6, (0..3).flat_map(|service| [service, 2, 7, 8, 2, 4, 0, 0, 0, 1]).collect()),
    ];
    for (name, choice, bytes) in messages {
        seeds.add("gss_reply", name, [&[choice], &bytes[..]].concat());
    }
}

fn nfs(seeds: &mut Seeds) {
    let handle = FileHandle::new(&[7; 32]).expect("a handle of 32 bytes");
    let body =
        |path: &str| MountBody { hostname: MountName::new("192.0.2.7"), directory: DirPath::new(path) };
    let groups = Groups { names: vec![MountName::new("10.0.0.0/8"), MountName::new("host")] };
    let results = [
        ("ok", 0, xdr(&MountResult::Ok(MountOk { handle, auth_flavors: vec![1, 0] }))),
        ("fail", 0, xdr(&MountResult::Fail(MountStatus::Acces))),
        ("list", 1, xdr(&MountList { mounts: vec![body("/"), body("/srv")] })),
        (
            "exports",
            2,
            xdr(&Exports {
                exports: vec![ExportNode { directory: DirPath::new("/"), groups: groups.clone() }],
            }),
        ),
        ("groups", 3, xdr(&groups)),
        ("body", 3, xdr(&body("/d"))),
    ];
    for (name, choice, bytes) in results {
        seeds.add("mount", name, [&[choice], &bytes[..]].concat());
    }
    let mut calls = vec![4];
    for path in ["/", "/d", "//./other/d/", "/other/../d", "/f", "d", "/other/f/", "f/./."] {
        calls.extend([&[0x81], &piece(path.as_bytes())[..]].concat());
    }
    for procedure in [2, 5, 0, 3, 4, 2] {
        calls.extend([procedure, 0]);
    }
    seeds.add("mount", "calls", calls);

    // One operation of each kind, and with some a handle.
    let forged = [&[1][..], &[0; 8], b"object", &[0; 16]].concat();
    let operations: [(&str, Vec<u8>); 6] = [
        ("forged", [&[0, 0, 0], &piece(&forged)[..]].concat()),
        ("changed", vec![1, 0, 0, 7, 1, 3, 13, 2, 9, 250, 4, 60]),
        ("cut", vec![2, 0, 24, 8, 1, 40, 2, 2, 64, 2, 3, 0]),
        ("foreign", vec![3, 0, 0, 3, 1, 0, 3, 5, 0]),
        ("spliced", vec![4 + 6 * 9, 0, 3, 4 + 6 * 20, 1, 4, 4 + 6, 5, 2]),
        ("removed", vec![5, 0, 0, 5, 0, 0, 3, 6, 0, 3, 7, 0, 1, 1, 0]),
    ];
    for (name, bytes) in operations {
        seeds.add("file_handles", name, bytes);
    }
}

/// FPDUs for the windows and Receives that the endpoint of the target has.
fn fpdus(seeds: &mut Seeds) {
    let send = |msn, offset, last, opcode: Opcode, invalidate, payload: &[u8]| {
        let header =
            Untagged { last, control: opcode.control(), invalidate, queue: queue::SEND, msn, offset };
        [&header.encode()[..], payload].concat()
    };
    let (writable, readable) = (writable_window(), readable_window());
    let write = |offset, payload: &[u8]| {
        let (control, stag) = (Opcode::Write.control(), writable.key.0);
        let header = Tagged { last: true, control, stag, offset: writable.address + offset };
        [&header.encode()[..], payload].concat()
    };
    let request = ReadRequest {
        sink_stag: 77,
        sink_offset: 0x1000,
        size: 100,
        source_stag: readable.key.0,
        source_offset: readable.address + 5,
    };
    let control = Opcode::ReadRequest.control();
    let read = |msn| {
        let header =
            Untagged { last: true, control, invalidate: 0, queue: queue::READ_REQUEST, msn, offset: 0 };
        [&header.encode()[..], &request.encode()].concat()
    };
    let terminate = Untagged {
        last: true,
        control: Opcode::Terminate.control(),
        invalidate: 0,
        queue: queue::TERMINATE,
        msn: 1,
        offset: 0,
    };
    let ulpdus: [(&str, Vec<Vec<u8>>); 8] = [
        (
            "sends",
            vec![
                send(1, 0, false, Opcode::Send, 0, b"first "),
                send(1, 6, true, Opcode::Send, 0, b"second"),
                send(2, 0, true, Opcode::SendSolicited, 0, &[8; 99]),
                send(3, 0, true, Opcode::SendInvalidate, writable.key.0, b"closed"),
            ],
        ),
        (
            "writes",
            vec![
                write(0, b"front"),
                write(9000, &[3; 300]),
                write(16_000, &[4; 384]),
                write(16_384, b"over"),
            ],
        ),
        ("reads", vec![read(1), send(1, 0, true, Opcode::SendInvalidate, readable.key.0, b""), read(2)]),
        ("empty", vec![send(1, 0, true, Opcode::Send, 0, b""), write(0, b""), read(1)]),
        ("terminate", vec![[&terminate.encode()[..], &[0x12, 3, 0, 0]].concat()]),
        ("terminate-cut", vec![[&terminate.encode()[..], &[0x12, 3, 0]].concat()]),
        (
            "terminate-open",
            vec![[&Untagged { last: false, ..terminate }.encode()[..], &[0x12, 3, 0, 0]].concat()],
        ),
        ("short", vec![vec![0x41, 0x43, 0, 0], vec![0xC1, 0x40]]),
    ];
    for (name, ulpdus) in ulpdus {
        let fpdus = ulpdus.iter().flat_map(|ulpdu| seal(ulpdu, false).expect("a short ULPDU"));
        let fpdus: Vec<u8> = fpdus.collect();
        assert!(
            FpduView::new(&fpdus).ulpdu().is_some_and(|ulpdu| HeaderView::new(ulpdu).header_len().is_some())
        );
        // With CRCs and without, strict and not, as Initiator and Responder, and with work in between.
        for how in [2, 3, 3 | 1 << 2, 2 | 1 << 7, 3 | 1 << 7, 3 | 1 << 3 | 1 << 7, 2 | 1 << 6] {
            for cut in [8, 9] {
                seeds.add("iwarp_receive", format!("{name}-{how}-{cut}"), [&[how, cut], &fpdus[..]].concat());
            }
        }
        // The next-to-first byte of the CRC field makes the last FPDU longer, and the first byte breaks its CRC.
        for field in [[0, 20, 0, 0], [0xFF, 0, 0, 0], [0xFF, 100, 0, 0]] {
            let mut fpdus = fpdus.clone();
            *fpdus.last_chunk_mut().expect("FPDUs") = field;
            for how in [2 | 1 << 7, 3 | 1 << 7] {
                let name = format!("{name}-{how}-{}-{}", field[0], field[1]);
                seeds.add("iwarp_receive", name, [&[how, 60], &fpdus[..]].concat());
            }
        }
    }
}

/// Decisions for the histories: any bytes have a meaning.
fn histories(seeds: &mut Seeds) {
    for target in ["endpoints", "hostile_peer", "characteristics"] {
        for seed in 1_u32..=8 {
            let mut state = seed;
            let bytes = (0..seed * 100).map(|_| {
                // xorshift32
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                // Small decisions are the usual ones.
                let [byte, spread, ..] = state.to_be_bytes();
                if spread % 2 == 0 { byte % 8 } else { byte }
            });
            seeds.add(target, format!("random-{seed}"), bytes.collect::<Vec<u8>>());
        }
    }
}

/// Descriptions of our own, one with its side file, and some that are wrong.
fn descriptions(seeds: &mut Seeds) {
    macro_rules! specs {
        ($file:literal) => {
            include_str!(concat!("../../xdrgen-tests/specs/", $file))
        };
    }
    let language = [specs!("ours/language.x"), "\0", specs!("marks/language.toml")].concat();
    seeds.add("descriptions", "language", language);
    seeds.add("descriptions", "mount3", specs!("ours/mount3.x"));
    seeds.add("descriptions", "rpc", specs!("ours/rpc.x"));
    for (name, text) in [
        ("circle", "typedef a b; typedef b a; struct c { c d; };"),
        ("numbers", "const A = 0x; const B = 09; const C = -9223372036854775809;"),
        ("unfinished", "struct a { int b<"),
        ("comment", "%kept\n/* unfinished *"),
        ("marks", "typedef opaque a<>;\0[items]\na = { ddp = true }"),
    ] {
        seeds.add("descriptions", name, text);
    }
}
