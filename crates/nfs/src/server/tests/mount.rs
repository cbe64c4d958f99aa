//! Tests of the MOUNT program.

use super::*;
use crate::mount::{Exports as ExportList, MAX_MOUNT_PATH, MountList, MountProcedure, MountStatus};

impl Bed {
    pub(super) async fn mount_call<T: Decode>(
        &self,
        procedure: MountProcedure,
        arguments: &impl Encode,
    ) -> T {
        let call = [MOUNT_PROGRAM, MOUNT_VERSION, procedure.number()];
        Decoder::new(self.rpc(call, arguments).await.unwrap()).decode_all().unwrap()
    }

    async fn mounted(&self, path: &str) -> Result<FileHandle, MountStatus> {
        match self.mnt(path).await {
            MountResult::Ok(mounted) => {
                assert_eq!(mounted.auth_flavors, [1, 0]);
                Ok(mounted.handle)
            }
            MountResult::Fail(status) => Err(status),
        }
    }
}

// requirement: rfc1813-5.1.4-1, rfc1813-5.2.1-1, rfc1813-5.2.1-2, rfc1813-5.2.1-3
#[tokio::test]
async fn an_export_and_what_is_below_it() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let inner = bed.make_directory(directory, "in ner", 0o755).await;
        let file = bed.make_file(directory, "file", 0o644).await;
        bed.make_link(bed.root, "link", "dir").await;
        bed.make_link(directory, "to file", "file").await;
        for (path, handle) in [
            ("/", Ok(bed.root)),
            ("", Ok(bed.root)),
            ("/dir", Ok(directory)),
            ("/dir/", Ok(directory)),
            ("//dir/./in ner", Ok(inner)),
            ("/none", Err(MountStatus::NoEnt)),
            // As Linux does: RFC 1813 §5.2.1 speaks of directories only.
            ("/dir/file", Ok(file)),
            ("/dir/file/", Err(MountStatus::NotDir)),
            ("/dir/file/.", Err(MountStatus::NotDir)),
            ("/dir/file/x", Err(MountStatus::NotDir)),
            ("/dir/to file", Err(MountStatus::NotDir)),
            ("/link", Err(MountStatus::NotDir)),
            ("/link/in ner", Err(MountStatus::NotDir)),
            ("/dir/..", Err(MountStatus::Acces)),
            ("/../../etc", Err(MountStatus::Acces)),
            (&*format!("/{}", "x".repeat(256)), Err(MountStatus::NameTooLong)),
            (&*format!("/{}", "x/".repeat(600)), Err(MountStatus::NameTooLong)),
            // MNTPATHLEN counts the bytes of the path as it is sent.
            (&*"/".repeat(MAX_MOUNT_PATH), Ok(bed.root)),
            (&*"/".repeat(MAX_MOUNT_PATH + 1), Err(MountStatus::NameTooLong)),
        ] {
            assert_eq!(bed.mounted(path).await, handle, "{} {path}", bed.name);
        }
    }
}

/// Found by fuzzing: "." before the name of an export hid the export.
#[tokio::test]
async fn a_path_with_dots_leads_to_the_same_export() {
    let export = |name: &str| Export::new(name, Arc::new(MemoryFs::new(MemoryOptions::default())));
    let bed = Bed::serving("memory", vec![export("/"), export("/a/b")], HandleKey::random());
    bed.make_directory(bed.root, "a", 0o755).await;
    for path in ["/a/b", "/./a/b", "/a/./b", "//a//./b/."] {
        assert_eq!(bed.mounted(path).await.ok(), bed.server.root_handle("/a/b"), "{path}");
    }
}

// requirement: rfc1813-5.2.1-3
#[tokio::test]
async fn a_path_is_walked_as_the_caller() {
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let closed = bed.make_directory(bed.root, "closed", 0o700).await;
        bed.make_directory(closed, "inner", 0o777).await;
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.mounted("/closed").await, Ok(closed), "{}", bed.name);
        assert_eq!(bed.mounted("/closed/inner").await, Err(MountStatus::Acces), "{}", bed.name);
    }
}

// requirement: rfc1813-5.2.1-4, rfc1813-5.2.2-1, rfc1813-5.2.3-1, rfc1813-5.2.4-1
#[tokio::test]
async fn who_mounted_what() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    bed.make_directory(bed.root, "dir", 0o755).await;
    bed.mounted("/").await.unwrap();
    bed.mounted("/dir").await.unwrap();
    bed.mounted("/dir").await.unwrap();
    bed.mounted("/none").await.unwrap_err();
    bed.peer = "198.51.100.7:1".parse().unwrap();
    bed.mounted("/").await.unwrap();
    let dump = async |bed: &Bed| {
        let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
        list.mounts
            .iter()
            .map(|mount| {
                let host = String::from_utf8_lossy(mount.hostname.as_bytes()).into_owned();
                format!("{host}:{}", mount.directory)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(dump(&bed).await, ["192.0.2.1:/", "192.0.2.1:/dir", "198.51.100.7:/"]);
    bed.mount_call::<()>(MountProcedure::UmntAll, &()).await;
    assert_eq!(dump(&bed).await, ["192.0.2.1:/", "192.0.2.1:/dir"]);
    bed.peer = "192.0.2.1:9".parse().unwrap();
    bed.mount_call::<()>(MountProcedure::Umnt, &DirPath::new("/")).await;
    assert_eq!(dump(&bed).await, ["192.0.2.1:/dir"]);
}

#[tokio::test]
async fn procedures_without_arguments_take_none() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    for procedure in
        [MountProcedure::Null, MountProcedure::Dump, MountProcedure::UmntAll, MountProcedure::Export]
    {
        let call = [MOUNT_PROGRAM, MOUNT_VERSION, procedure.number()];
        let failed = bed.rpc(call, &1_u32).await.unwrap_err();
        let expected = rpcrdma_oncrpc::AcceptStat::GarbageArguments;
        assert!(matches!(failed, ReplyBody::Accepted { status, .. } if status == expected), "{failed:?}");
        bed.rpc(call, &()).await.unwrap();
    }
}

// requirement: rfc1813-5.2.5-1
#[tokio::test]
async fn exports_and_their_groups() {
    let bed = Bed::memory_with(MemoryOptions::default(), |export, _| {
        export.allow = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()].into();
    });
    let list: ExportList = bed.mount_call(MountProcedure::Export, &()).await;
    assert_eq!(list.exports.len(), 1);
    assert_eq!(list.exports[0].directory, DirPath::new("/"));
    let groups: Vec<_> = list.exports[0].groups.names.iter().map(|name| name.to_string()).collect();
    assert_eq!(groups, ["192.0.2.0/24", "2001:db8::/32"]);
}

// requirement: rfc1813-5.2.2-2
#[tokio::test]
async fn the_list_of_mounts_is_bounded() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    for number in 0..=crate::server::MOUNTS_MAX {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        bed.peer = SocketAddr::from(([10, 0, high, low], 1));
        bed.mounted("/").await.unwrap();
    }
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), crate::server::MOUNTS_MAX);
}

// requirement: rfc1813-5.2.3-1
#[tokio::test]
async fn i6_spellings_of_one_path_are_one_mount() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    bed.make_directory(bed.root, "dir", 0o755).await;
    for path in ["/dir", "//dir", "/./dir/", "dir", "/dir/././/"] {
        bed.mounted(path).await.unwrap();
    }
    // The host through a dual-stack socket.
    bed.peer = "[::ffff:192.0.2.1]:7".parse().unwrap();
    bed.mounted("/dir//").await.unwrap();
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), 1);
    assert_eq!(list.mounts[0].directory, DirPath::new("/dir"));
    bed.mount_call::<()>(MountProcedure::Umnt, &DirPath::new("dir/.")).await;
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts, []);
}

#[tokio::test]
async fn i6_one_host_pushes_out_no_mounts_of_others() {
    use crate::server::{MOUNTS_MAX, MOUNTS_PER_HOST};
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    for number in 0..=MOUNTS_PER_HOST {
        bed.make_directory(bed.root, &format!("{number}"), 0o755).await;
    }
    bed.peer = "198.51.100.7:1".parse().unwrap();
    bed.mounted("/").await.unwrap();
    // Many hosts with the most mounts that each may have.
    for host in 0..32 {
        bed.peer = SocketAddr::from(([10, 0, 0, host], 1));
        for number in 0..=MOUNTS_PER_HOST {
            bed.mounted(&format!("/{number}")).await.unwrap();
        }
    }
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), MOUNTS_MAX);
    let of =
        |host: &str| list.mounts.iter().filter(|mount| mount.hostname.as_bytes() == host.as_bytes()).count();
    assert_eq!(of("198.51.100.7"), 1);
    assert!((0..32).all(|host| of(&format!("10.0.0.{host}")) > 0), "each has some");
}

// requirement: rfc1813-5.2.4-1
#[tokio::test]
async fn i6_the_addresses_of_one_ipv6_network_have_the_mounts_of_one_host() {
    use crate::server::MOUNTS_PER_HOST;
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let hosts = u16::try_from(MOUNTS_PER_HOST).unwrap() + 10;
    for host in 0..hosts {
        bed.peer = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, host], 1));
        bed.mounted("/").await.unwrap();
    }
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), MOUNTS_PER_HOST);
    // A host unmounts only its own.
    bed.mount_call::<()>(MountProcedure::UmntAll, &()).await;
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), MOUNTS_PER_HOST - 1);
}

#[tokio::test]
async fn i6_lists_of_mounts_and_link_targets_hold_memory_of_their_clients_share() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let symlink = bed.make_link(bed.root, "link", &"t/".repeat(2000)).await;
    bed.mounted("/").await.unwrap();
    let share = bed.server.shared.shares.of(Some(bed.peer.ip()));
    let in_use = || share.usage().in_use;
    let mount = |procedure: MountProcedure| [MOUNT_PROGRAM, MOUNT_VERSION, procedure.number()];
    let dump = bed.reply(mount(MountProcedure::Dump), &()).await;
    assert!(in_use() >= 20, "{}", in_use());
    let before = in_use();
    let export = bed.reply(mount(MountProcedure::Export), &()).await;
    assert!(in_use() > before, "{}", in_use());
    let before = in_use();
    let readlink = [NFS_PROGRAM, NFS_VERSION, NfsProcedure::Readlink.number()];
    let target = bed.reply(readlink, &ReadlinkArgs { symlink }).await;
    assert!(in_use() >= before + 4000, "{}", in_use());
    drop((dump, export, target));
    assert_eq!(in_use(), 0);
    // A client that does not read results has no more memory. Lists fail, READLINK gets NFS3ERR_JUKEBOX, and
    // another address is served.
    let held: Vec<_> = std::iter::from_fn(|| share.allocate(1, 1).ok()).collect();
    tokio::time::pause();
    bed.rpc(mount(MountProcedure::Dump), &()).await.unwrap_err();
    assert_eq!(bed.status(&ReadlinkArgs { symlink }).await, Some(Status::Jukebox));
    let other = Bed { peer: "192.0.2.9:700".parse().unwrap(), ..bed };
    other.rpc(mount(MountProcedure::Dump), &()).await.unwrap();
    assert_eq!(other.status(&ReadlinkArgs { symlink }).await, None);
    drop(held);
}

/// RFC 5531 §8.3, §13.3.4: 0, and the numbers from 0x60000000, are reserved.
// requirement: rfc5531-8.3-1, rfc5531-13.3.4-1
#[test]
fn rfc5531_8_3_no_program_has_a_reserved_number() {
    let numbers = [
        NFS_PROGRAM,
        MOUNT_PROGRAM,
        crate::extents::EXTENTS_PROGRAM,
        rpcrdma::ccp::rdmaconfig::PROGRAM,
        rpcrdma_oncrpc::rpcbind::PROGRAM,
    ];
    for number in numbers {
        assert!((1..0x6000_0000).contains(&number), "{number:#x}");
    }
    // Programs of this project alone come from the range that local administrators define.
    assert!((0x2000_0000..0x4000_0000).contains(&crate::extents::EXTENTS_PROGRAM));
}
