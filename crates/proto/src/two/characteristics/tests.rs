use super::*;

fn value(id: u32, data: &[u8]) -> Value {
    Value { id, data: Bytes::copy_from_slice(data) }
}

#[test]
fn each_profile_has_its_numbers() {
    let size = Characteristic::ReceiveSize(16_384);
    let takes = Characteristic::RemoteInvalidation(true);
    let general = Characteristic::Reverse(ReverseSupport::General);
    for (profile, characteristic, expected) in [
        (Profile::P1, &size, Some(value(1, &[0, 0, 0x40, 0]))),
        (Profile::P1, &takes, Some(value(2, &[0, 0, 0, 1]))),
        (Profile::P1, &general, Some(value(3, &[0, 0, 0, 2]))),
        (Profile::P2, &size, Some(value(1, &[0, 0, 0x40, 0]))),
        (Profile::P2, &takes, None),
        (Profile::P2, &general, Some(value(2, &[0, 0, 0, 2]))),
    ] {
        assert_eq!(characteristic.encode(profile), expected, "{profile:?} {characteristic:?}");
        if let Some(value) = expected {
            assert_eq!(
                Characteristic::decode(profile, &value, &Limits::default()),
                Ok(Some(characteristic.clone()))
            );
        }
    }
}

#[test]
fn xcharext_s2_1_data_of_a_known_characteristic_is_of_its_type() {
    for (id, data) in [
        (1, &[][..]),
        (1, &[0, 0, 0x40]),
        (1, &[0, 0, 0x40, 0, 0, 0, 0, 0]),
        (2, &[0, 0, 0, 2]),
        (2, &[]),
        (3, &[0, 0, 0, 3]),
        (3, &[0]),
    ] {
        let bad = two::Error::BadCharacteristic { id, len: data.len() };
        assert_eq!(
            Characteristic::decode(Profile::P1, &value(id, data), &Limits::default()),
            Err(bad),
            "{id} {data:?}"
        );
    }
    assert_eq!(
        Characteristic::decode(Profile::P1, &value(1, &[0; 4]), &Limits::default()),
        Ok(Some(Characteristic::ReceiveSize(0)))
    );
}

#[test]
fn xcharext_s2_1_what_is_not_known_is_no_error() {
    for id in [0, 8, 77, EXPERIMENTAL - 1] {
        assert_eq!(
            Characteristic::decode(Profile::P1, &value(id, b"anything"), &Limits::default()),
            Ok(None)
        );
    }
    // An experimental value is passed on.
    for id in [EXPERIMENTAL, u32::MAX] {
        let data = Bytes::from_static(b"anything");
        let expected = Characteristic::Registered { id, data };
        assert_eq!(
            Characteristic::decode(Profile::P1, &value(id, b"anything"), &Limits::default()),
            Ok(Some(expected))
        );
    }
}

#[test]
fn v2_03_s5_1_1_without_data_it_is_the_default() {
    assert_eq!(
        Characteristic::decode(Profile::P2, &value(1, &[]), &Limits::default()),
        Ok(Some(Characteristic::ReceiveSize(4096)))
    );
    assert_eq!(
        Characteristic::decode(Profile::P2, &value(2, &[]), &Limits::default()),
        Ok(Some(Characteristic::Reverse(ReverseSupport::Inline)))
    );
}

#[test]
fn xcharext_s6_2_only_experimental_ids_can_be_registered() {
    let short = Bytes::from_static(b"1234");
    assert_eq!(
        Registered::new(EXPERIMENTAL - 1, short.clone(), true),
        Err(NotRegistered::NotExperimental { id: EXPERIMENTAL - 1 })
    );
    let long = Bytes::from(vec![0; REGISTERED_MAX + 1]);
    assert_eq!(
        Registered::new(EXPERIMENTAL, long, true),
        Err(NotRegistered::TooLong { len: REGISTERED_MAX + 1 })
    );
    let mut exchanged = Exchanged::default();
    for id in (EXPERIMENTAL..).take(REGISTERED_MOST) {
        exchanged.register(Registered::new(id, short.clone(), false).unwrap()).unwrap();
    }
    let again = Registered::new(EXPERIMENTAL, short.clone(), false).unwrap();
    assert_eq!(exchanged.register(again), Err(NotRegistered::Twice { id: EXPERIMENTAL }));
    let more = Registered::new(u32::MAX, short, false).unwrap();
    assert_eq!(exchanged.register(more), Err(NotRegistered::TooMany));
}

/// Version-two-07, Appendix B.3: there are no experimental ids any more.
#[test]
fn v2_07_b_3_experimental_ids_are_of_earlier_profiles() {
    let data = Bytes::from_static(b"anything");
    let own = Characteristic::Registered { id: EXPERIMENTAL, data: data.clone() };
    let value = Value { id: EXPERIMENTAL, data };
    for (profile, has) in [(Profile::P1, true), (Profile::P2, true), (Profile::P3, false)] {
        assert_eq!(own.encode(profile), has.then(|| value.clone()));
        let decoded = Characteristic::decode(profile, &value, &Limits::default());
        assert_eq!(decoded, Ok(has.then(|| own.clone())), "{profile:?}");
    }
}

/// Version-two-03 §5.1.1: a value without data is the default. In P1 it is no structure.
#[test]
fn v2_03_s5_1_1_a_structure_without_data_is_the_default_from_p2_on() {
    let none = |profile| {
        let id = Property::BufferStructure.id(profile).unwrap();
        Characteristic::decode(profile, &value(id, &[]), &Limits::default())
    };
    assert!(none(Profile::P1).is_err());
    assert_eq!(none(Profile::P2), Ok(Some(Characteristic::BufferStructure(BufferStructure::default()))));
}

/// Rtrext-02 §8: a side without transmission groups announces none of their properties, and one message in a Send is not
/// announced.
#[test]
fn rtrext_s8_what_is_the_default_of_an_extension_is_not_announced() {
    use Characteristic::{
        Combined, ReceiveSize, RemoteInvalidation, RequestLimit, ResponseLimit, Reverse, TransmissionSupport,
    };
    let base = || vec![ReceiveSize(4096), RemoteInvalidation(false), Reverse(ReverseSupport::Inline)];
    let mut side = Characteristics::default();
    assert_eq!(Vec::from_iter(side.all()), base());
    side.combined = 2;
    assert_eq!(Vec::from_iter(side.all()), [base(), vec![Combined(2)]].concat());
    side.combined = 1;
    side.transmissions.support = 1;
    let groups = vec![TransmissionSupport(1), RequestLimit(1), ResponseLimit(1)];
    assert_eq!(Vec::from_iter(side.all()), [base(), groups].concat());
}
