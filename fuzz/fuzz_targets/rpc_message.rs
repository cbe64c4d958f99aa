//! Any bytes as an RPC message (RFC 5531 §9), or as a record of a byte stream (§11): decoded or refused. A decoded
//! message must encode to one that decodes to the same value.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use rpcrdma_oncrpc::record::{RecordLimits, RecordReader};
use rpcrdma_oncrpc::{CallHeader, Credential, ReplyHeader};
use rpcrdma_xdr::{Decoder, Encode, Encoder};

fn encoded(value: &impl Encode) -> Option<Bytes> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder).ok()?;
    Some(encoder.finish().flatten().0)
}

fuzz_target!(|data: &[u8]| {
    let message = Bytes::copy_from_slice(data);
    if let Ok(header) = CallHeader::read(&mut Decoder::new(message.clone())) {
        let again = encoded(&header).map(|bytes| CallHeader::read(&mut Decoder::new(bytes)));
        assert!(matches!(again, Some(Ok(same)) if same == header));
        let _ = Credential::try_from(header.credential);
    }
    if let Ok(header) = Decoder::new(message).decode::<ReplyHeader>() {
        let again = encoded(&header).map(|bytes| Decoder::new(bytes).decode::<ReplyHeader>());
        assert!(matches!(again, Some(Ok(same)) if same == header));
    }

    let mut reader = RecordReader::new(RecordLimits { record: 4096, fragments: 16 });
    for piece in data.chunks(7) {
        reader.buffer().extend_from_slice(piece);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => assert!(record.len() <= 4096),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
