//! Operations and properties on transmissions (rtrext-02).

use bytes::BytesMut;
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::two::transmission::{BufferStructure, Operation, OperationType};

/// Operations and properties on transmissions: decoded or refused. XDR encodes each in only one way, so a decoded
/// value must encode to the same bytes, of the stated length. The first byte selects the kind of the others.
pub fn round_trips(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match OperationType::ALL.get(usize::from(*choice)) {
        Some(kind) => operation(*kind, data),
        None => structure(data),
    }
}

fn operation(kind: OperationType, data: &[u8]) {
    let Ok(operation) = Operation::decode(kind, data, &Limits::default()) else { return };
    let mut bytes = BytesMut::new();
    operation.encode(&mut bytes);
    assert_eq!(bytes, data);
    assert_eq!((operation.encoded_len(), operation.kind()), (data.len(), kind));
    if let Operation::Request(request) = operation {
        let _ = request.fault();
    }
}

fn structure(data: &[u8]) {
    let Ok(structure) = BufferStructure::decode(data, &Limits::default()) else { return };
    let mut bytes = BytesMut::new();
    structure.encode(&mut bytes);
    assert_eq!(bytes, data);
    assert_eq!(structure.encoded_len(), data.len());
    if structure.check().is_ok() {
        assert_eq!(structure.sum(), u128::from(structure.total));
        let fewest = BufferStructure::new(structure.groups.iter().copied()).expect("the same buffer");
        assert!(fewest.encoded_len() <= structure.encoded_len());
        assert!(fewest.segments().take(1000).eq(structure.segments().take(1000)));
    }
    // A peer can announce billions of segments; only the first ones are examined.
    for segment in structure.segments().take(1000) {
        if let Some(number) = segment.target {
            assert_eq!(structure.target(number), Some(segment));
        }
    }
    assert_eq!(structure.target(structure.targets()), None);
}
