//! A short walk through what the fuzz targets search: histories of random octets.

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        // What is found becomes a seed of the fuzz targets.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn i6_i8_two_endpoints_on_a_bad_fabric(octets in proptest::collection::vec(any::<u8>(), 0..1500)) {
        rpcrdma_histories::two_endpoints(&octets);
    }

    #[test]
    fn i6_a_peer_that_keeps_to_nothing(octets in proptest::collection::vec(any::<u8>(), 0..1500)) {
        rpcrdma_histories::hostile_peer(&octets);
    }

    #[test]
    fn v2_any_interleaving_of_changes_and_calls_loses_no_message_and_overruns_no_receive(
        octets in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        rpcrdma_histories::characteristics(&octets);
    }
}
