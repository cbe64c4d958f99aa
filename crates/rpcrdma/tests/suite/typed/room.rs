//! Calls and results for which the connection has no room: they are refused before anything leaves.

use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::{Bounds, Call, CallError, ClientConfig, Execution, ServerConfig, ServerMonitor};

use super::store::{self, Echo, Get};
use super::{GetResults, MIB, On, Store, Whole, key, on_each, serve_with};

/// A client with this room.
async fn with_room(on: On, room: usize) -> (rpcrdma::Client, ServerMonitor) {
    let mut client = ClientConfig::default();
    client.memory = room;
    client.max_record = room;
    serve_with(on, Arc::new(store::serve(Store::default())), ServerConfig::default(), client).await
}

#[test]
fn results_for_which_there_is_no_room_are_refused_with_both_numbers() {
    on_each(|on| async move {
        let (client, monitor) = with_room(on, MIB).await;
        let error = client.call::<Get>(key("a")).await.unwrap_err();
        let CallError::ResultsTooLong { len, room } = error else { panic!("{error:?}") };
        // Over RDMA two Receives take memory too, and over TCP the header is part of the record.
        let expected = if on == On::Sim { (MIB, MIB - 2 * 4096) } else { (8 + MIB, MIB - 24) };
        assert_eq!((len, room), expected);
        assert_eq!(error.execution(), Execution::NotExecuted);
        assert!(
            error.to_string().contains(&format!("may take {len} bytes; the connection has room for {room}")),
            "{error}"
        );
        assert_eq!(monitor.stats().calls, 0, "nothing has left");
        // With a bound of its own the call has room.
        let got = client.call_within::<Get>(key("a"), Bounds::inline(8).item(1000)).await.unwrap();
        assert_eq!(got, GetResults::Missing);
    });
}

/// The pool gives memory in powers of two.
#[tokio::test(start_paused = true)]
async fn results_that_fit_only_without_the_rounding_of_the_pool_are_refused() {
    let (client, monitor) = with_room(On::Sim, MIB).await;
    let bounds = |item| Bounds::inline(8).item(item);
    let error = client.call_within::<Get>(key("a"), bounds(MIB / 2 + 1)).await.unwrap_err();
    assert!(matches!(error, CallError::ResultsTooLong { len: MIB, .. }), "{error:?}");
    assert_eq!(monitor.stats().calls, 0);
    client.call_within::<Get>(key("a"), bounds(MIB / 2)).await.unwrap();
}

/// Over TCP a call is one record.
#[tokio::test]
async fn a_call_that_is_no_record_is_refused_with_both_numbers() {
    let (client, monitor) = with_room(On::Tcp, 10_000).await;
    let data = Whole(Bytes::from(vec![0; 10_000]));
    let error = client.call_within::<Echo>(&data, Bounds::inline(100)).await.unwrap_err();
    assert!(matches!(error, CallError::CallTooLong { len: 10_044, room: 10_000 }), "{error:?}");
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert_eq!(monitor.stats().calls, 0);
}

/// Over RDMA an item is one chunk.
#[tokio::test(start_paused = true)]
async fn an_item_that_no_chunk_holds_is_refused_with_both_numbers() {
    let mut config = ClientConfig::default();
    config.protocol.max_segment_len = 4096;
    config.protocol.max_segments = 2;
    let program = Arc::new(store::serve(Store::default()));
    let (client, monitor) = serve_with(On::Sim, program, ServerConfig::default(), config).await;
    let data = Whole(Bytes::from(vec![0; 8193]));
    let error = client.call_within::<Echo>(&data, Bounds::inline(100)).await.unwrap_err();
    assert!(matches!(error, CallError::CallTooLong { len: 8193, room: 8192 }), "{error:?}");
    let error = client.call::<Get>(key("a")).await.unwrap_err();
    assert!(matches!(error, CallError::ResultsTooLong { len: MIB, room: 8192 }), "{error:?}");
    let raw = Call::new(store::PROGRAM, store::VERSION, 6).results(8193);
    let error = client.call_raw(raw).await.unwrap_err();
    assert!(matches!(error, CallError::ResultsTooLong { len: 8193, room: 8192 }), "{error:?}");
    assert_eq!(monitor.stats().calls, 0);
    let data = Whole(Bytes::from(vec![0; 7000]));
    assert_eq!(client.call::<Echo>(&data).await.unwrap(), data);
}
