use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::Payload;

#[test]
fn one_slice_is_handed_on_without_a_copy() {
    let data = Bytes::from_static(b"abcde");
    let mut payload = Payload::from(data.clone());
    assert_eq!((payload.len(), payload.iter().count(), payload.rest.is_none()), (5, 1, true));
    let front = payload.split_to(2);
    let ((front, copied), (back, copied_too)) = (front.join(), payload.join());
    assert_eq!((front.as_ptr(), back.as_ptr()), (data.as_ptr(), data[2..].as_ptr()));
    assert_eq!((copied, copied_too), (0, 0));
    assert!(Payload::default().is_empty());
    assert_eq!(Payload::default().join(), (Bytes::new(), 0));
}

#[test]
fn the_rest_after_a_whole_slice_is_not_copied() {
    let second = Bytes::from_static(b"second");
    let mut payload: Payload = [Bytes::from_static(b"first"), second.clone()].into_iter().collect();
    assert_eq!(payload.split_to(5).join().1, 0);
    let (rest, copied) = payload.join();
    assert_eq!((rest.as_ptr(), copied), (second.as_ptr(), 0));
}

proptest! {
    /// A payload in any slices acts like its bytes in one.
    #[test]
    fn slices_act_like_their_bytes(slices in vec(vec(any::<u8>(), 0..5), 0..6), at in 0_usize..32) {
        let flat = slices.concat();
        let payload: Payload = slices.into_iter().map(Bytes::from).collect();
        prop_assert_eq!(&payload, &Payload::from(Bytes::from(flat.clone())));
        prop_assert_eq!((payload.len(), payload.is_empty()), (flat.len(), flat.is_empty()));
        let cut = at.min(flat.len());
        let mut short = payload.clone();
        short.truncate(at);
        prop_assert_eq!(&short, &flat[..cut]);
        let mut back = payload.clone();
        let front = back.split_to(at);
        prop_assert_eq!((&front, &back), (&short, &Bytes::copy_from_slice(&flat[cut..]).into()));
        let mut again = back;
        again.push_front(front.join().0);
        prop_assert_eq!(&again, &payload);
        let several = payload.iter().count() > 1;
        let (joined, copied) = payload.join();
        prop_assert_eq!((copied, joined), (if several { flat.len() } else { 0 }, Bytes::from(flat)));
    }
}
