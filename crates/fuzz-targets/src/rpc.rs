//! RPC messages, records of a byte stream, and rpcbind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, Bytes};
use rpcrdma_oncrpc::record::{RecordError, RecordLimits, RecordReader, RecordWriter};
use rpcrdma_oncrpc::rpcbind::{
    AddressText, ENTRIES_MAX, Lookup, Mapping, MappingList, Netid, Rpcb, RpcbEntryList, RpcbList,
    UniversalAddress,
};
use rpcrdma_oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader};
use rpcrdma_xdr::{Decoder, Encode, Encoder, Piece, Stream};

use crate::survives;

fn encoded(value: &impl Encode) -> Option<Bytes> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder).ok()?;
    Some(encoder.finish().flatten().0)
}

/// Any bytes as an RPC message (RFC 5531 §9): decoded or refused. A decoded header must encode to one that decodes to
/// the same value; so must its credential.
pub fn rpc_message(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    if let Ok(header) = CallHeader::read(&mut Decoder::new(message.clone())) {
        let again = encoded(&header).map(|bytes| CallHeader::read(&mut Decoder::new(bytes)));
        assert!(matches!(again, Some(Ok(same)) if same == header));
        if let Ok(credential) = Credential::try_from(header.credential) {
            let again = OpaqueAuth::try_from(&credential).expect("a credential that was decoded");
            assert_eq!(Credential::try_from(again), Ok(credential));
        }
    }
    if let Ok(header) = Decoder::new(message).decode::<ReplyHeader>() {
        let again = encoded(&header).map(|bytes| Decoder::new(bytes).decode::<ReplyHeader>());
        assert!(matches!(again, Some(Ok(same)) if same == header));
    }
}

/// The records of a complete stream, and its fault, found without the code under test (RFC 5531 §11).
fn reference(mut stream: &[u8], limits: RecordLimits) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let (mut records, mut record, mut fragments) = (Vec::new(), Vec::new(), 0);
    let begun =
        |fragments: usize, stream: &[u8]| (fragments > 0 || !stream.is_empty()).then_some("truncated");
    while let Some((word, rest)) = stream.split_first_chunk::<4>() {
        let word = u32::from_be_bytes(*word);
        let length = usize::try_from(word & 0x7fff_ffff).unwrap();
        fragments += 1;
        if record.len() + length > limits.record {
            return (records, Some("too long"));
        }
        if fragments > limits.fragments {
            return (records, Some("too many fragments"));
        }
        let Some((fragment, rest)) = rest.split_at_checked(length) else {
            return (records, Some("truncated"));
        };
        record.extend_from_slice(fragment);
        stream = rest;
        if word >> 31 == 1 {
            records.push(std::mem::take(&mut record));
            fragments = 0;
        }
    }
    let fault = begun(fragments, stream);
    (records, fault)
}

/// Checks the reader of records against [`reference`], and its memory, while the stream comes in pieces of `step`
/// bytes.
fn read_records(stream: &[u8], step: usize, limits: RecordLimits) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let mut reader = RecordReader::new(limits);
    let mut records = Vec::new();
    let fault = |error| match error {
        RecordError::TooLong { .. } => "too long",
        RecordError::TooManyFragments { .. } => "too many fragments",
        _ => "truncated",
    };
    let found = 'stream: {
        for piece in stream.chunks(step) {
            reader.buffer().extend_from_slice(piece);
            // The buffer holds the rest of a fragment, or bytes read ahead; it may double in size to grow.
            let most = 2 * (limits.record + step + (32 << 10));
            assert!(reader.buffer().capacity() <= most, "{} of {most}", reader.buffer().capacity());
            loop {
                match reader.next_record() {
                    Ok(Some(record)) => records.push(record.to_vec()),
                    Ok(None) => break,
                    Err(error) => break 'stream Some(fault(error)),
                }
            }
        }
        reader.finish().err().map(fault)
    };
    assert!(found.is_some() || reader.is_idle());
    (records, found)
}

/// Record marking (RFC 5531 §11). However a stream is cut, the reader must return the records and the fault that
/// another implementation finds in all of it, within its limits of memory. A message that a writer divides into
/// fragments of any length must be read again. The first bytes choose limits and lengths.
pub fn records(data: &[u8]) {
    let Some((&[record, fragments, step, fragment], stream)) = data.split_first_chunk() else { return };
    let limits = RecordLimits { record: usize::from(record) << 4, fragments: usize::from(fragments % 32) };
    let expected = reference(stream, limits);
    for step in [usize::from(step) + 1, stream.len().max(1)] {
        assert_eq!(read_records(stream, step, limits), expected);
    }

    let fragment = usize::from(fragment) + 1;
    let mut writer = RecordWriter::new();
    let mut message = Stream::default();
    let (front, back) = stream.split_at(stream.len() / 3);
    message.push(Piece::Inline(Bytes::copy_from_slice(front)));
    message.push(Piece::Inline(Bytes::copy_from_slice(back)));
    writer.push_fragments(&message, fragment);
    writer.push(&message);
    let mut sent = Vec::new();
    while writer.has_remaining() {
        let count = writer.chunk().len().min(usize::from(step) + 1);
        sent.extend_from_slice(&writer.chunk()[..count]);
        writer.advance(count);
    }
    let limits = RecordLimits { record: stream.len(), fragments: stream.len().div_ceil(fragment).max(1) };
    let (records, fault) = read_records(&sent, usize::from(step) + 1, limits);
    assert_eq!((&records[..], fault), (&[stream.to_vec(), stream.to_vec()][..], None));
}

/// The address in universal form, found without the code under test (RFC 5665 §5.2.3).
fn universal(text: &str) -> Option<SocketAddr> {
    let mut parts: Vec<&str> = text.split('.').collect();
    let mut octet = || {
        let part = parts.pop().filter(|part| part.chars().all(|digit| digit.is_ascii_digit()))?;
        part.parse::<u8>().ok().filter(|_| part.len() <= 3)
    };
    let (low, high) = (octet()?, octet()?);
    let address: IpAddr = parts.join(".").parse().ok()?;
    Some(SocketAddr::new(address, u16::from(high) << 8 | u16::from(low)))
}

fn address(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    let parsed: Option<UniversalAddress> = text.parse().ok();
    assert_eq!(parsed.map(|UniversalAddress(address)| address), universal(text), "{text:?}");
    if let Some(address) = parsed {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

/// Messages of rpcbind (RFC 1833) and universal addresses. A message that decodes must encode to one of equal length
/// and meaning, within the limits of the module. An address that a lookup finds in any answer must be of the right
/// family, with a port. The first byte selects what the others are.
pub fn rpcbind(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    match choice % 8 {
        0 => drop(survives::<Mapping>(data)),
        1 => drop(survives::<Rpcb>(data)),
        2 => assert!(survives::<MappingList>(data).is_none_or(|list| list.0.len() <= ENTRIES_MAX)),
        3 => assert!(survives::<RpcbList>(data).is_none_or(|list| list.0.len() <= ENTRIES_MAX)),
        4 => assert!(survives::<RpcbEntryList>(data).is_none_or(|list| list.0.len() <= ENTRIES_MAX)),
        5 => {
            if let Some(AddressText(text)) = survives(data) {
                address(text.as_bytes());
            }
        }
        6 => address(data),
        _ => lookup(choice >> 3, data),
    }
}

/// Looks a service up in an answer of each kind.
fn lookup(choice: u8, data: &[u8]) {
    let netid = [Netid::Tcp, Netid::Tcp6, Netid::Rdma, Netid::Rdma6][usize::from(choice % 4)];
    let host =
        if netid.is_ipv6() { IpAddr::from(Ipv6Addr::LOCALHOST) } else { IpAddr::from(Ipv4Addr::LOCALHOST) };
    let lookup = Lookup { program: 100_003, version: 3, netid, host };
    let answer = || Decoder::new(Bytes::copy_from_slice(data));
    for found in [
        answer().decode_all().ok().and_then(|answer| lookup.in_address(&answer)),
        answer().decode_all().ok().and_then(|answer| lookup.in_entries(&answer)),
        answer().decode_all().ok().and_then(|answer| lookup.in_list(&answer)),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(found.is_ipv6(), netid.is_ipv6());
        assert_ne!(found.port(), 0);
        assert!(!found.ip().is_unspecified());
    }
    if let Some(found) = answer().decode_all().ok().and_then(|port| lookup.at_port(port)) {
        assert_ne!(found.port(), 0);
    }
}
