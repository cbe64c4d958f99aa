//! The MOUNT program.

use super::*;
use crate::mount::{Exports as ExportList, MountList, MountProcedure, MountStatus};

impl Bed {
    async fn mount_call<T: Decode>(&self, procedure: MountProcedure, arguments: &impl Encode) -> T {
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

#[tokio::test]
async fn an_export_and_what_is_below_it() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let inner = bed.make_directory(directory, "in ner", 0o755).await;
        bed.make_file(directory, "file", 0o644).await;
        bed.make_link(bed.root, "link", "dir").await;
        for (path, handle) in [
            ("/", Ok(bed.root)),
            ("", Ok(bed.root)),
            ("/dir", Ok(directory)),
            ("/dir/", Ok(directory)),
            ("//dir/./in ner", Ok(inner)),
            ("/none", Err(MountStatus::NoEnt)),
            ("/dir/file", Err(MountStatus::NotDir)),
            ("/link", Err(MountStatus::NotDir)),
            ("/link/in ner", Err(MountStatus::NotDir)),
            ("/dir/..", Err(MountStatus::Acces)),
            ("/../../etc", Err(MountStatus::Acces)),
            (&*format!("/{}", "x".repeat(256)), Err(MountStatus::NameTooLong)),
            (&*format!("/{}", "x/".repeat(600)), Err(MountStatus::NameTooLong)),
        ] {
            assert_eq!(bed.mounted(path).await, handle, "{} {path}", bed.name);
        }
    }
}

#[tokio::test]
async fn a_path_is_walked_as_the_caller() {
    for bed in Bed::all() {
        if bed.places.is_some() && !super::objects::acts_as_callers() {
            continue;
        }
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let closed = bed.make_directory(bed.root, "closed", 0o700).await;
        bed.make_directory(closed, "inner", 0o777).await;
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.mounted("/closed").await, Ok(closed), "{}", bed.name);
        assert_eq!(bed.mounted("/closed/inner").await, Err(MountStatus::Acces), "{}", bed.name);
    }
}

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
async fn exports_and_their_groups() {
    let bed = Bed::memory_with(MemoryOptions::default(), |export, _| {
        export.allow = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    });
    let list: ExportList = bed.mount_call(MountProcedure::Export, &()).await;
    assert_eq!(list.exports.len(), 1);
    assert_eq!(list.exports[0].directory, DirPath::new("/"));
    let groups: Vec<_> = list.exports[0].groups.names.iter().map(|name| name.to_string()).collect();
    assert_eq!(groups, ["192.0.2.0/24", "2001:db8::/32"]);
}

#[tokio::test]
async fn the_list_of_mounts_is_bounded() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    for number in 0..=crate::mount::server::MOUNTS_MAX {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        bed.peer = SocketAddr::from(([10, 0, high, low], 1));
        bed.mounted("/").await.unwrap();
    }
    let list: MountList = bed.mount_call(MountProcedure::Dump, &()).await;
    assert_eq!(list.mounts.len(), crate::mount::server::MOUNTS_MAX);
}
