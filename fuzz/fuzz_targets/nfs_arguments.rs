//! Arguments and results of every NFSv3 procedure (RFC 1813 §3.3), plain and with a Read chunk: decoded or refused.
//! Arguments that decode must encode to the same value.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use rpcrdma_nfs::wire::{
    AccessArgs, CommitArgs, CreateArgs, FsinfoArgs, FsstatArgs, GetattrArgs, LinkArgs, LookupArgs, MkdirArgs,
    MknodArgs, NfsCall, NfsResult, PathconfArgs, ReadArgs, ReaddirArgs, ReaddirplusArgs, ReadlinkArgs,
    RemoveArgs, RenameArgs, RmdirArgs, SetattrArgs, SymlinkArgs, WriteArgs,
};
use rpcrdma_xdr::{Decoder, Encoder, ReadChunk};

fn check<C: NfsCall + PartialEq>(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    if let Ok(arguments) = Decoder::new(message.clone()).decode_all::<C>() {
        let mut encoder = Encoder::new();
        if arguments.encode(&mut encoder).is_ok() {
            let again = Decoder::new(encoder.finish().flatten().0).decode_all::<C>();
            assert!(matches!(again, Ok(same) if same == arguments));
        }
    }
    let _ = Decoder::new(message.clone()).decode_all::<NfsResult<C::Ok, C::Fail>>();
    if let Some((&[position, length], base)) = data.split_first_chunk() {
        let chunk =
            ReadChunk { position: u32::from(position) * 4, data: vec![0; usize::from(length)].into() };
        let _ = Decoder::with_read_chunks(Bytes::copy_from_slice(base), vec![chunk]).decode_all::<C>();
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&procedure, data)) = data.split_first() else { return };
    match procedure % 21 {
        0 => check::<GetattrArgs>(data),
        1 => check::<SetattrArgs>(data),
        2 => check::<LookupArgs>(data),
        3 => check::<AccessArgs>(data),
        4 => check::<ReadlinkArgs>(data),
        5 => check::<ReadArgs>(data),
        6 => check::<WriteArgs>(data),
        7 => check::<CreateArgs>(data),
        8 => check::<MkdirArgs>(data),
        9 => check::<SymlinkArgs>(data),
        10 => check::<MknodArgs>(data),
        11 => check::<RemoveArgs>(data),
        12 => check::<RmdirArgs>(data),
        13 => check::<RenameArgs>(data),
        14 => check::<LinkArgs>(data),
        15 => check::<ReaddirArgs>(data),
        16 => check::<ReaddirplusArgs>(data),
        17 => check::<FsstatArgs>(data),
        18 => check::<FsinfoArgs>(data),
        19 => check::<PathconfArgs>(data),
        _ => check::<CommitArgs>(data),
    }
});
