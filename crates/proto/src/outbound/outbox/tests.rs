use rpcrdma_verbs::{Buffer, RemoteSegment};

use super::*;

/// The provider never refuses an invalidation because its queue is full, so an invalidation costs no entry.
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
