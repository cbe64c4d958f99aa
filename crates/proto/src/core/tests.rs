use super::*;

/// The contract of the provider: an invalidation is never refused for want of room, so it takes none.
#[test]
fn requests_cost_what_the_send_queue_counts() {
    let segment = RemoteSegment { key: Key(1), address: 0, length: 4 };
    let targets = vec![segment; 3];
    let sources = vec![segment; 2];
    let sink = Buffer::adopt(vec![0; 8]);
    for (request, entries) in [
        (WorkRequest::Send(SendRequest::default()), 1),
        (WorkRequest::Write { gather: vec![], targets }, 3),
        (WorkRequest::Read { sink, sources }, 2),
        (WorkRequest::BindWindow { key: Key(1) }, 1),
        (WorkRequest::LocalInvalidate { key: Key(1) }, 0),
    ] {
        assert_eq!(cost(&request), entries, "{request:?}");
    }
}

#[test]
fn memory_is_had_together_up_to_all_that_there_is() {
    let domain = ProtectionDomain::new(ProtectionDomain::room_for(4096) + ProtectionDomain::room_for(8192));
    let lengths = |buffers: Vec<Option<Buffer>>| {
        buffers.iter().map(|buffer| buffer.as_ref().map(|buffer| buffer.len())).collect::<Vec<_>>()
    };
    let buffers = allocate_together(&domain, &[4096, 0, 8192]).unwrap();
    let limit = domain.usage().limit;
    assert!(matches!(
        allocate_together(&domain, &[4096, 8192]),
        Err(PoolExhausted::InUse { requested, .. }) if requested == limit
    ));
    assert_eq!(lengths(buffers), [Some(4096), None, Some(8192)]);
    assert!(matches!(
        allocate_together(&domain, &[4096, 8192, 1]),
        Err(PoolExhausted::OverLimit { requested, .. }) if requested > limit
    ));
}
