use proptest::prelude::*;

use super::*;

/// A file that takes some bytes in each call, and has space for so many.
fn write(slices: &[Vec<u8>], parts: &[usize], space: usize) -> (Vec<u8>, usize, Result<(), ErrorKind>) {
    let (mut file, mut parts) = (Vec::new(), parts.iter().cycle());
    let data: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let (length, result) = write_all(&data, |rest, done| {
        assert!(rest.len() <= SLICES_MAX && rest.iter().all(|slice| !slice.is_empty()));
        assert_eq!(done, file.len());
        let most = (*parts.next().unwrap()).min(space - file.len());
        match most {
            0 if file.len() == space => return Err(ErrorKind::StorageFull.into()),
            0 => return Err(ErrorKind::Interrupted.into()),
            _ => {}
        }
        let taken: Vec<u8> = rest.iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
        file.extend(&taken);
        Ok(taken.len())
    });
    (file, length, result.map_err(|error| error.kind()))
}

proptest! {
    /// However the data is cut, and wherever the calls stop, its bytes are written in order and counted.
    #[test]
    fn bytes_are_written_in_order(
        slices in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
        mut parts in proptest::collection::vec(0_usize..50, 1..8),
        space in 0_usize..600,
    ) {
        parts.push(7);
        let all = slices.concat();
        let (file, length, result) = write(&slices, &parts, space);
        prop_assert_eq!(length, all.len().min(space));
        prop_assert_eq!(&file[..], &all[..length]);
        prop_assert_eq!(result, if all.len() <= space { Ok(()) } else { Err(ErrorKind::StorageFull) });
    }
}

#[test]
fn more_slices_than_one_call_takes_are_written_by_several() {
    let slices: Vec<_> = (0..2 * SLICES_MAX + 1).map(|at| at.to_le_bytes()[..3].to_vec()).collect();
    let (file, length, result) = write(&slices, &[usize::MAX], usize::MAX);
    assert_eq!((file, length, result), (slices.concat(), 3 * slices.len(), Ok(())));
}

#[test]
fn a_call_that_writes_nothing_is_an_error() {
    let data = [IoSlice::new(b"abc")];
    let refused = |(length, result): (usize, io::Result<()>)| (length, result.unwrap_err().kind());
    assert_eq!(refused(write_all(&data, |_, _| Ok(0))), (0, ErrorKind::WriteZero));
    let mut counts = [2, 0].into_iter();
    assert_eq!(refused(write_all(&data, |_, _| Ok(counts.next().unwrap()))), (2, ErrorKind::WriteZero));
    let never = |_: &[IoSlice<'_>], _| panic!("nothing is left to write");
    let (length, result) = write_all(&[IoSlice::new(b"")], never);
    assert!(length == 0 && result.is_ok());
}
