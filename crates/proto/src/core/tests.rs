use super::*;

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
