//! RPC messages and MOUNT: generated types against hand-written ones.

use rpcrdma::xdr::{Decode, Encode};
use rpcrdma_capture::exchange::Exchanges;
use rpcrdma_capture::{linux, text};
use rpcrdma_nfs::mount;
use rpcrdma_xdrgen_tests::{mount3, rpc};

use crate::{octets, value};

fn equal<Generated: Encode + Decode>(written: &impl Encode) -> Generated {
    let bytes = octets(written);
    let generated: Generated = value(bytes.clone()).unwrap();
    assert_eq!(octets(&generated), bytes);
    generated
}

/// The head of each recorded message reads as an `rpc_msg`, whose octets are those of the message.
#[test]
fn recorded_messages_of_linux() {
    let (mut calls, mut replies) = (0, 0);
    for (_, recording) in linux::IWARP.iter().chain(linux::ROCE) {
        for session in text::read(recording).unwrap() {
            let all = Exchanges::of(&session).all;
            for part in all.iter().flat_map(|exchange| std::iter::once(&exchange.call).chain(&exchange.reply))
            {
                if !part.genuine {
                    continue;
                }
                let mut decoder = rpcrdma::xdr::Decoder::new(part.message.clone());
                let message: rpc::RpcMsg = decoder.decode().unwrap();
                let length = part.message.len() - decoder.remaining();
                assert_eq!(octets(&message), part.message.slice(..length));
                match message.body {
                    rpc::RpcMsgBody::Call(call) => {
                        assert_eq!(call.rpcvers, 2);
                        if call.cred.flavor == rpc::AuthFlavor::AuthSys {
                            let credential: rpc::AuthsysParms = value(call.cred.body.clone()).unwrap();
                            assert_eq!(octets(&credential), call.cred.body);
                        }
                        calls += 1;
                    }
                    rpc::RpcMsgBody::Reply(_) => replies += 1,
                }
            }
        }
    }
    assert_eq!((calls, replies), (476, 468));
}

#[test]
fn messages_of_mount() {
    let path = || mount::DirPath::new("/export");
    let name = || mount::MountName::new("host");
    let list = mount::MountList { mounts: vec![mount::MountBody { hostname: name(), directory: path() }; 3] };
    assert_eq!(equal::<mount3::Mountlist>(&list).0.len(), 3);
    let groups = mount::Groups { names: vec![name(); 2] };
    let exports = mount::Exports { exports: vec![mount::ExportNode { directory: path(), groups }; 2] };
    let exports: mount3::Exports = equal(&exports);
    assert_eq!((exports.0.len(), exports.0[0].ex_groups.0.len()), (2, 2));
    let handle = rpcrdma_nfs::wire::FileHandle::new(&[1, 2, 3]).unwrap();
    let ok = mount::MountResult::Ok(mount::MountOk { handle, auth_flavors: vec![1, 6] });
    assert!(matches!(equal(&ok), mount3::Mountres3::Mnt3Ok(ok) if ok.auth_flavors == [1, 6]));
    let failed: mount3::Mountres3 = equal(&mount::MountResult::Fail(mount::MountStatus::Acces));
    assert_eq!(failed, mount3::Mountres3::Default(mount3::Mountstat3::Mnt3errAcces));
}
