//! READDIR and READDIRPLUS on every file system.

use std::collections::BTreeSet;

use super::*;

impl Bed {
    async fn readdir(&self, dir: FileHandle, cookie: u64, count: u32) -> Result<DirList, Status> {
        let arguments = ReaddirArgs { dir, cookie, verifier: [0; 8], count };
        let listed = self.call(&arguments).await.map_err(|(status, _)| status)?;
        assert_eq!(listed.verifier, [0; 8]);
        let (encoded, _) = encode(&listed).unwrap().flatten();
        assert!(encoded.len() <= count as usize, "{}: {} over {count}", self.name, encoded.len());
        Ok(listed.reply)
    }

    async fn readdirplus(
        &self,
        dir: FileHandle,
        cookie: u64,
        (dircount, maxcount): (u32, u32),
    ) -> Result<DirListPlus, Status> {
        let arguments = ReaddirplusArgs { dir, cookie, verifier: [0; 8], dircount, maxcount };
        let listed = self.call(&arguments).await.map_err(|(status, _)| status)?;
        let (encoded, _) = encode(&listed).unwrap().flatten();
        assert!(encoded.len() <= maxcount as usize, "{}: {} over {maxcount}", self.name, encoded.len());
        Ok(listed.reply)
    }

    async fn names(&self, dir: FileHandle, count: u32) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let list = self.readdir(dir, cookie, count).await.unwrap();
            names.extend(list.entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()));
            if list.eof {
                return names;
            }
            cookie = list.entries.last().unwrap().cookie;
        }
    }
}

// requirement: rfc1813-3.3.16-3, rfc1813-3.3.16-4
#[tokio::test]
async fn every_entry_once_whatever_the_size_of_the_reply() {
    for bed in Bed::all() {
        let mut expected = BTreeSet::from([".".to_owned(), "..".to_owned()]);
        for number in 0..60 {
            let name = format!("entry {number} {}", "x".repeat(number));
            bed.make_file(bed.root, &name, 0o640).await;
            expected.insert(name);
        }
        for count in [300, 512, 4096, 1 << 20] {
            let names = bed.names(bed.root, count).await;
            assert_eq!(names.len(), expected.len(), "{} {count}", bed.name);
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected, "{} {count}", bed.name);
        }
    }
}

// requirement: rfc1813-3.3.16-4
#[tokio::test]
async fn an_empty_directory_has_its_dots() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let mut names = bed.names(directory, 4096).await;
        names.sort();
        assert_eq!(names, [".", ".."], "{}", bed.name);
        let list = bed.readdirplus(directory, 0, (4096, 4096)).await.unwrap();
        for entry in &list.entries {
            let expected = if entry.name.as_bytes() == b"." { directory } else { bed.root };
            assert_eq!(entry.handle, Some(expected), "{} {}", bed.name, entry.name);
            assert_eq!(entry.fileid, entry.attributes.unwrap().fileid);
        }
        // Above the root nothing shows: neither a handle nor a number of the parent.
        let own = bed.getattr(bed.root).await.unwrap().fileid;
        for entry in bed.readdirplus(bed.root, 0, (4096, 4096)).await.unwrap().entries {
            if matches!(entry.name.as_bytes(), b"." | b"..") {
                assert_eq!((entry.handle, entry.fileid), (Some(bed.root), own), "{}", bed.name);
            }
        }
        for entry in bed.readdir(bed.root, 0, 4096).await.unwrap().entries {
            if matches!(entry.name.as_bytes(), b"." | b"..") {
                assert_eq!(entry.fileid, own, "{}", bed.name);
            }
        }
    }
}

// requirement: rfc1813-2.5-6, rfc1813-3.3.17-1
#[tokio::test]
async fn plus_brings_handles_and_attributes() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let link = bed.make_link(bed.root, "link", "nowhere").await;
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let list = bed.readdirplus(bed.root, 0, (8192, 8192)).await.unwrap();
        assert!(list.eof);
        for (name, handle) in [("file", file), ("link", link), ("dir", directory)] {
            let entry = list.entries.iter().find(|entry| entry.name.as_bytes() == name.as_bytes()).unwrap();
            assert_eq!(entry.handle, Some(handle), "{} {name}", bed.name);
            assert_eq!(entry.attributes, Some(bed.getattr(handle).await.unwrap()), "{} {name}", bed.name);
            assert_eq!(entry.fileid, entry.attributes.unwrap().fileid);
        }
    }
}

// requirement: rfc1813-3.3.17-2, rfc1813-3.3.17-3
#[tokio::test]
async fn plus_keeps_to_both_limits() {
    for bed in Bed::all() {
        for number in 0..40 {
            bed.make_file(bed.root, &format!("file{number:02}"), 0o640).await;
        }
        for limits in [(64, 8192), (8192, 1024), (1, 8192)] {
            let mut seen = 0;
            let mut cookie = 0;
            loop {
                let list = bed.readdirplus(bed.root, cookie, limits).await.unwrap();
                let names: usize = list.entries.iter().map(DirEntryPlus::dir_size).sum();
                assert!(names <= limits.0 as usize || list.entries.len() == 1, "{} {limits:?}", bed.name);
                seen += list.entries.len();
                if list.eof {
                    break;
                }
                cookie = list.entries.last().unwrap().cookie;
            }
            assert_eq!(seen, 42, "{} {limits:?}", bed.name);
        }
    }
}

#[tokio::test]
async fn names_and_numbers_may_fill_their_limit() {
    for bed in Bed::all() {
        bed.make_file(bed.root, "file", 0o640).await;
        let whole = bed.readdirplus(bed.root, 0, (8192, 8192)).await.unwrap();
        let names: usize = whole.entries.iter().map(DirEntryPlus::dir_size).sum();
        for (short, expected) in [(0, 3), (1, 2)] {
            let limit = u32::try_from(names - short).unwrap();
            let list = bed.readdirplus(bed.root, 0, (limit, 8192)).await.unwrap();
            assert_eq!(list.entries.len(), expected, "{}", bed.name);
        }
    }
}

/// RFC 1813 §3.3.19: the sizes of FSINFO are those of this server, and bound its listings too.
#[tokio::test]
async fn a_small_limit_of_the_server_bounds_every_size() {
    for (max_payload, largest) in [(0, 1), (1000, 1000)] {
        let file_system = Arc::new(MemoryFs::new(MemoryOptions::default()));
        let export = Export { squash: Squash::Nobody, ..Export::new("/", file_system) };
        let options = ServerOptions { max_payload, ..ServerOptions::default() };
        let server = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
        let bed = Bed::calling(&server, "/", "192.0.2.1", 0);
        let info = bed.call(&FsinfoArgs { root: bed.root }).await.unwrap();
        let sizes =
            [info.read_max, info.read_multiple, info.write_max, info.write_multiple, info.readdir_preferred];
        assert_eq!(sizes, [largest; 5]);
        for number in 0..50 {
            bed.make_file(bed.root, &format!("file{number}"), 0o640).await;
        }
        match bed.readdir(bed.root, 0, u32::MAX).await {
            Ok(list) => {
                let entries: usize = list.entries.iter().map(DirEntry::size).sum();
                assert!(ReaddirOk::OVERHEAD + entries <= 1000 && !list.eof, "{entries}");
            }
            Err(status) => assert_eq!((status, largest), (Status::TooSmall, 1)),
        }
    }
}

// requirement: rfc1813-3.3.16-7
#[tokio::test]
async fn a_reply_with_room_for_nothing_is_too_small() {
    for bed in Bed::all() {
        bed.make_file(bed.root, "file", 0o640).await;
        let overhead = u32::try_from(ReaddirOk::OVERHEAD).unwrap();
        for count in [0, 1, 100, overhead + 27] {
            assert_eq!(bed.readdir(bed.root, 0, count).await, Err(Status::TooSmall), "{} {count}", bed.name);
        }
        // "." alone fits: 8 + 4 + 4 + 8 bytes and the preceding word of an entry.
        let list = bed.readdir(bed.root, 0, overhead + 28).await.unwrap();
        assert_eq!((list.entries.len(), list.eof), (1, false), "{}", bed.name);
        let status = bed.readdirplus(bed.root, 0, (4096, 100)).await;
        assert_eq!(status, Err(Status::TooSmall), "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.16-6
#[tokio::test]
async fn cookies_stay_valid_while_the_directory_changes() {
    for bed in Bed::all() {
        let stable: BTreeSet<String> = (0..30).map(|number| format!("stable{number:02}")).collect();
        for name in &stable {
            bed.make_file(bed.root, name, 0o640).await;
            bed.make_file(bed.root, &format!("gone-{name}"), 0o640).await;
        }
        let mut seen: Vec<String> = Vec::new();
        let mut cookie = 0;
        let mut round = 0;
        loop {
            let list = bed.readdir(bed.root, cookie, 400).await.unwrap();
            seen.extend(list.entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()));
            if list.eof {
                break;
            }
            cookie = list.entries.last().unwrap().cookie;
            // Remove the very entry at which the listing continues, and others; add new ones.
            let last = list.entries.last().unwrap().name.to_string_lossy().into_owned();
            if last.starts_with("gone") {
                assert_eq!(bed.remove(bed.root, &last).await, None);
            }
            let _ = bed.remove(bed.root, &format!("gone-stable{round:02}")).await;
            bed.make_file(bed.root, &format!("new{round}"), 0o640).await;
            round += 1;
            assert!(round < 200, "{}: a listing without end", bed.name);
        }
        let found: Vec<_> = seen.iter().filter(|name| stable.contains(*name)).cloned().collect();
        assert_eq!(found.len(), stable.len(), "{}: {seen:?}", bed.name);
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), stable, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.16-6
#[tokio::test]
async fn cookies_survive_a_restart() {
    for bed in Bed::directories() {
        for number in 0..20 {
            bed.make_file(bed.root, &format!("file{number}"), 0o640).await;
        }
        let all = bed.names(bed.root, 4096).await;
        let first = bed.readdir(bed.root, 0, 400).await.unwrap();
        let bed = bed.restarted();
        let rest = bed.readdir(bed.root, first.entries.last().unwrap().cookie, 4096).await.unwrap();
        let names: Vec<String> = first
            .entries
            .iter()
            .chain(&rest.entries)
            .map(|entry| entry.name.to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, all, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.16-5
#[tokio::test]
async fn what_is_no_cookie_and_no_directory() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        assert_eq!(bed.readdir(file, 0, 4096).await, Err(Status::NotDir), "{}", bed.name);
        let verifier = [1; 8];
        let wrong = ReaddirArgs { dir: bed.root, cookie: 1, verifier, count: 4096 };
        assert_eq!(bed.status(&wrong).await, Some(Status::BadCookie), "{}", bed.name);
        // An invented cookie is refused or leads to the end, without harm.
        for cookie in [u64::MAX, 1 << 63, (1 << 63) - 1, 12_345] {
            match bed.readdir(bed.root, cookie, 4096).await {
                Ok(_) | Err(Status::BadCookie) => {}
                Err(other) => panic!("{} {cookie}: {other}", bed.name),
            }
        }
    }
}

#[tokio::test]
async fn a_listing_needs_the_right_to_read() {
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let closed = bed.make_directory(bed.root, "closed", 0o711).await;
        let names_only = bed.make_directory(bed.root, "names", 0o744).await;
        bed.make_file(names_only, "inner", 0o644).await;
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.readdir(closed, 0, 4096).await, Err(Status::Acces), "{}", bed.name);
        // The right to read without search gives names, but no objects.
        let list = bed.readdirplus(names_only, 0, (4096, 4096)).await.unwrap();
        let inner = list.entries.iter().find(|entry| entry.name.as_bytes() == b"inner").unwrap();
        assert_eq!((inner.handle, inner.attributes), (None, None), "{}", bed.name);
        assert_eq!(bed.lookup(names_only, "inner").await, Err(Status::Acces), "{}", bed.name);
    }
}

/// Clients that request listings without reading them hold memory of their own share.
#[tokio::test(start_paused = true)]
async fn i6_listings_hold_memory_of_their_clients_share() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    for number in 0..600 {
        bed.make_file(bed.root, &format!("entry {number} {}", "x".repeat(100)), 0o640).await;
    }
    let shares = &bed.server.shared.shares;
    let in_use = || shares.domain().usage().in_use;
    let (dir, verifier) = (bed.root, [0; 8]);
    let plus = ReaddirplusArgs { dir, cookie: 0, verifier, dircount: 1 << 20, maxcount: 1 << 20 };
    let plus_call = [NFS_PROGRAM, NFS_VERSION, NfsProcedure::Readdirplus.number()];
    let reply = bed.reply(plus_call, &plus).await;
    // The memory is that of the results, not of the requested size.
    assert!(reply.len() > 100_000, "{}", reply.len());
    assert!((reply.len() - 100..1 << 20).contains(&in_use()), "{} {}", reply.len(), in_use());
    drop(reply);
    assert_eq!(in_use(), 0);
    // Limits of any length, filled.
    for count in (10_000..10_016).chain([4096, 32 << 10]) {
        let call = [NFS_PROGRAM, NFS_VERSION, NfsProcedure::Readdir.number()];
        let reply = bed.reply(call, &ReaddirArgs { dir, cookie: 0, verifier, count }).await;
        assert!(in_use() >= reply.len() - 200, "{count}: {} {}", reply.len(), in_use());
        assert_eq!(reply.len() % 4, 0, "{count}");
    }
    let mut replies = Vec::new();
    while let Ok(room) = shares.of(Some(bed.peer.ip())).reserve(1 << 20) {
        drop(room);
        replies.push(bed.reply(plus_call, &plus).await);
    }
    // The next call waits and then gets NFS3ERR_JUKEBOX; another address is served.
    assert_eq!(bed.readdirplus(dir, 0, (1 << 20, 1 << 20)).await.unwrap_err(), Status::Jukebox);
    let held = in_use();
    assert!(held <= shares.limit(), "{held}");
    let other = Bed { peer: "192.0.2.9:700".parse().unwrap(), ..bed };
    assert!(other.readdirplus(dir, 0, (1 << 20, 1 << 20)).await.is_ok());
    drop(replies);
    assert_eq!(other.server.shared.shares.domain().usage().in_use, 0);
}
