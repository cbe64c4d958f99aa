//! NFS version 4.1 on recordings of Linux: each compound and callback encodes to its octets. The types of version 4.2
//! read them too.

use bytes::Bytes;
use rpcrdma::Procedure;
use rpcrdma::xdr::{Decode, Encode};
use rpcrdma_xdrgen_tests::{nfs41, nfs42};

use crate::recordings::{self, Half, Recorded};
use crate::{octets, words};

fn survives<T: Encode + Decode>(half: &Half) {
    let value = half.decoder().decode_all::<T>().unwrap();
    if let Some(recorded) = &half.octets {
        assert_eq!(&octets(&value), recorded);
    }
}

#[test]
fn recorded_compounds_of_linux_have_equal_octets() {
    let (mut calls, mut replies, mut callbacks) = (0, 0, 0);
    for Recorded { procedure, arguments, results } in recordings::all() {
        match procedure {
            [nfs41::nfs_v4::PROGRAM, nfs41::nfs_v4::VERSION, 1] => {
                if arguments.is_whole {
                    survives::<nfs41::Compound4args>(&arguments);
                    survives::<nfs42::Compound4args>(&arguments);
                    calls += 1;
                }
                if let Some(half) = results {
                    survives::<nfs41::Compound4res>(&half);
                    survives::<nfs42::Compound4res>(&half);
                    replies += 1;
                }
            }
            [nfs41::nfs_cb::PROGRAM, nfs41::nfs_cb::VERSION, 1] => {
                survives::<nfs41::CbCompound4args>(&arguments);
                survives::<nfs41::CbCompound4res>(&results.unwrap());
                callbacks += 1;
            }
            _ => {}
        }
    }
    assert_eq!((calls, replies, callbacks), (84, 79, 1));
}

/// The results of a COMPOUND have no maximum: the function of the side file gives each call its own.
#[test]
fn a_compound_can_be_called() {
    use nfs41::{Compound4args, NfsArgop4, Read4args, Stateid4, Utf8string};

    let stateid = Stateid4 { seqid: 1, other: [2; 12] };
    let read = Read4args { stateid, offset: 0, count: 5000 };
    let arguments = Compound4args {
        tag: Utf8string(Bytes::from_static(b"tag")),
        minorversion: 1,
        argarray: vec![NfsArgop4::Putrootfh, NfsArgop4::Read(read)],
    };
    let mut expected = [&words(&[3])[..], b"tag\0", &words(&[1, 2, 24, 25, 1])].concat();
    expected.extend([&[2; 12][..], &words(&[0, 0, 5000])].concat());
    assert_eq!(octets(&arguments), expected);
    let bounds = nfs41::nfs_v4::Compound::bounds(&arguments);
    assert_eq!((bounds.inline, bounds.items()), (16 + 2 * 256, &[5000][..]));
    assert!(rpcrdma::Call::of::<nfs41::nfs_v4::Compound>(&arguments).is_ok());
}

/// A type that only a `%` line brings has the path of the side file.
#[test]
fn authsys_parms_comes_from_elsewhere() {
    let parameters = rpcrdma_xdrgen_tests::rpc::AuthsysParms {
        stamp: 1,
        machinename: "host".into(),
        uid: 2,
        gid: 3,
        gids: vec![4],
    };
    let security = nfs41::CallbackSecParms4::AuthSys(parameters);
    let expected = [&words(&[1, 1, 4])[..], b"host", &words(&[2, 3, 1, 4])].concat();
    assert_eq!(octets(&security), expected);
}

/// Lists of directory entries have no limit of their own, and are read without recursion.
#[test]
fn a_long_directory() {
    let entry = nfs41::Entry4 {
        cookie: 1,
        name: nfs41::Utf8string(Bytes::from_static(b"name")),
        attrs: nfs41::Fattr4 { attrmask: nfs41::Bitmap4(vec![]), attr_vals: nfs41::Attrlist4(Bytes::new()) },
    };
    let list = nfs41::Dirlist4 { entries: vec![entry; 20_000], eof: true };
    assert_eq!(crate::value::<nfs41::Dirlist4>(octets(&list)), Ok(list));
}
