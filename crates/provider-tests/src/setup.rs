//! Connection set-up.

use bytes::Bytes;
use rpcrdma_verbs::{ConnectError, ConnectParameters, OwnPrivateData};

use crate::harness::{connect_silently, meet, parameters, pattern, within};
use crate::{Difference, Fixture};

fn with_private_data(data: Bytes) -> ConnectParameters {
    ConnectParameters { private_data: data.into(), ..parameters() }
}

/// Checks private data that has arrived, up to what the fabric adds.
fn check_private_data(fixture: &dyn Fixture, seen: &Bytes, sent: &Bytes) {
    let (data, filling) = seen.split_at_checked(sent.len()).expect("all of the private data arrives");
    assert_eq!(data, &sent[..]);
    assert!(filling.is_empty() || fixture.differs(Difference::PaddedPrivateData), "{seen:?}");
    assert!(filling.iter().all(|&byte| byte == 0), "{seen:?}");
}

/// Checks private data of every length up to the largest, different in each direction.
pub async fn private_data_goes_both_ways(fixture: &dyn Fixture) {
    let most = fixture.max_private_data();
    for (a_len, b_len) in [(0, 0), (0, most), (most, 0), (most, most), (1, 2), (28, 28), (most - 1, 3)] {
        let (from_a, from_b) = (Bytes::from(pattern(a_len, 1)), Bytes::from(pattern(b_len, 2)));
        let duo =
            connect_silently(fixture, with_private_data(from_a.clone()), with_private_data(from_b.clone()))
                .await;
        check_private_data(fixture, duo.b.queue_pair.peer_private_data(), &from_a);
        check_private_data(fixture, duo.a.queue_pair.peer_private_data(), &from_b);
    }
}

/// Checks that each side states the private data for what its queue pair can do.
pub async fn private_data_follows_the_abilities(fixture: &dyn Fixture) {
    let announcement =
        OwnPrivateData::by_invalidation(Bytes::from_static(b"able"), Bytes::from_static(b"unable"));
    let says = || ConnectParameters { private_data: announcement.clone(), ..parameters() };
    let duo = connect_silently(fixture, says(), says()).await;
    for (teller, listener) in [(&duo.a, &duo.b), (&duo.b, &duo.a)] {
        let said = announcement.stated_by(teller.queue_pair.capabilities());
        assert_eq!(said, if teller.invalidates_remotely() { "able" } else { "unable" });
        check_private_data(fixture, listener.queue_pair.peer_private_data(), said);
    }
}

/// Checks that private data with one byte too many is an error of the caller, before anything is sent.
pub async fn too_much_private_data_is_refused(fixture: &dyn Fixture) {
    let listener = fixture.listen().await;
    let address = listener.local_address().unwrap();
    // Well beyond the limit of any fabric.
    let data = Bytes::from(vec![0; fixture.max_private_data().max(512) + 1]);
    let connector = fixture.connector();
    let result = within("the refusal", connector.connect(address, with_private_data(data))).await;
    assert!(matches!(result, Err(ConnectError::Invalid(_))), "{:?}", result.err());
}

/// Checks that the listener sees the private data before it decides, and that its reasons reach the other side.
pub async fn rejection_carries_private_data(fixture: &dyn Fixture) {
    let most = fixture.max_private_data();
    for len in [0, 1, most] {
        let mut listener = fixture.listen().await;
        let address = listener.local_address().unwrap();
        let connector = fixture.connector();
        let reason = Bytes::from(pattern(len, 3));
        let reject = async {
            let request = listener.accept().await.unwrap().request().await.unwrap();
            check_private_data(fixture, request.private_data(), &Bytes::from_static(b"please"));
            assert!(request.peer_address().is_some());
            request.reject(reason.clone()).await.expect("rejecting succeeds");
        };
        let parameters = with_private_data(Bytes::from_static(b"please"));
        let both = async { tokio::join!(connector.connect(address, parameters), reject) };
        let (result, ()) = within("the rejection", both).await;
        match result {
            Err(ConnectError::Rejected(rejected)) => {
                check_private_data(fixture, &rejected.private_data, &reason);
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("connected although rejected"),
        }
    }
}

/// Checks that an address without a listener is an error of the link.
pub async fn nobody_listens(fixture: &dyn Fixture) {
    let listener = fixture.listen().await;
    let address = listener.local_address().unwrap();
    drop(listener);
    let connector = fixture.connector();
    let result = within("the refusal", connector.connect(address, parameters())).await;
    assert!(matches!(result, Err(ConnectError::Io(_))), "{:?}", result.err());
}

/// Checks that a listener serves several connections, none of which holds up another.
pub async fn a_listener_serves_many(fixture: &dyn Fixture) {
    let mut listener = fixture.listen().await;
    let address = listener.local_address().unwrap();
    let connector = fixture.connector();
    let mut duos = Vec::new();
    for number in 0..8_u8 {
        let accept = async {
            let request = listener.accept().await.unwrap().request().await.unwrap();
            request.accept(with_private_data(Bytes::from(vec![number]))).await.unwrap()
        };
        let connecting = connector.connect(address, with_private_data(Bytes::from(vec![number; 2])));
        duos.push(meet(connecting, accept).await);
    }
    drop(listener);
    for (number, duo) in duos.iter_mut().enumerate() {
        let number = u8::try_from(number).unwrap();
        check_private_data(fixture, duo.a.queue_pair.peer_private_data(), &Bytes::from(vec![number]));
        check_private_data(fixture, duo.b.queue_pair.peer_private_data(), &Bytes::from(vec![number; 2]));
        duo.is_alive().await;
    }
    duos[3].a.queue_pair.abort();
    duos[3].both_end().await;
    duos[4].is_alive().await;
}

/// Checks that both ends know both addresses, and that these agree.
pub async fn addresses_are_told(fixture: &dyn Fixture) {
    let duo = connect_silently(fixture, parameters(), parameters()).await;
    let (a, b) = (&duo.a.queue_pair, &duo.b.queue_pair);
    assert_eq!(a.local_address(), b.peer_address());
    assert_eq!(b.local_address(), a.peer_address());
    assert_ne!(a.local_address(), b.local_address());
}
