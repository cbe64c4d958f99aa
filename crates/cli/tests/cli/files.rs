//! The commands that people know from coreutils: wildcards, listings, attributes, trees, space, checksums.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::{Server, fail, json, succeed, text};

/// Returns a server of this tree: `a.txt`, `b.txt`, `c.dat`, `.hidden.txt`, `d/e.txt`, `d/f/g.txt`, `link` to `d`.
fn tree() -> (Server, PathBuf) {
    let server = Server::start();
    let export = server.directory();
    fs::create_dir_all(export.join("d/f")).unwrap();
    for (name, content) in [
        ("a.txt", "aa"),
        ("b.txt", "b"),
        ("c.dat", ""),
        (".hidden.txt", ""),
        ("d/e.txt", "eee"),
        ("d/f/g.txt", "g"),
    ] {
        fs::write(export.join(name), content).unwrap();
    }
    symlink("d", export.join("link")).unwrap();
    (server, export)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Runs another program, which must succeed. Returns its standard output.
fn other(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn wildcards_stand_for_existing_names() {
    let (server, export) = tree();
    let ls = |path: &str| succeed(&["ls", "-d", &server.url(path)]);
    assert_eq!(ls("/*.txt"), "a.txt\nb.txt\n");
    assert_eq!(ls("/?.txt"), "a.txt\nb.txt\n");
    assert_eq!(ls("/[!a].txt"), "b.txt\n");
    assert_eq!(ls("/[a-b].*"), "a.txt\nb.txt\n");
    assert_eq!(ls("/.*"), ".hidden.txt\n");
    assert_eq!(ls("/*/e.txt"), "e.txt\ne.txt\n");
    assert_eq!(ls("/d/*/*.txt"), "g.txt\n");
    // With a slash at the end only directories match, and links to them.
    assert_eq!(ls("/*/"), "d\nlink\n");
    assert_eq!(succeed(&["cat", &server.url("/*.txt")]), "aab");
    // Nothing matches: the name is taken as it stands.
    let complaint = fail(1, &["ls", &server.url("/*.none")]);
    assert!(complaint.contains("%2A.none: no such file") && complaint.lines().count() == 1, "{complaint}");
    assert_eq!(succeed(&["rm", "-f", &server.url("/*.none")]), "");
    // A file of that very name goes first, and an encoded character is no wildcard.
    fs::write(export.join("*.txt"), "star").unwrap();
    assert_eq!(succeed(&["cat", &server.url("/*.txt")]), "star");
    assert_eq!(succeed(&["cat", &server.url("/%2A.txt")]), "star");
    fs::write(export.join("w?"), "why").unwrap();
    fs::write(export.join("wx"), "x").unwrap();
    assert_eq!(succeed(&["cat", &server.url("/w?")]), "why");
    assert_eq!(succeed(&["cat", &server.url("/w%3F")]), "why");
    fs::remove_file(export.join("w?")).unwrap();
    assert_eq!(succeed(&["cat", &server.url("/w?")]), "x");
    fail(1, &["cat", &server.url("/w%3F")]);
    // The URL that a listing prints leads back to the file.
    let listed = json(&["stat", &server.url("/%2A.*")]);
    let url = listed["entries"][0]["url"].as_str().unwrap();
    assert_eq!(succeed(&["cat", url]), "star");
    succeed(&["rm", url]);

    let local = server.place.path().join("got");
    fs::create_dir(&local).unwrap();
    let to = local.to_str().unwrap();
    succeed(&["get", &server.url("/*.txt"), to]);
    assert_eq!(fs::read(local.join("b.txt")).unwrap(), b"b");
    let complaint = fail(2, &["get", &server.url("/*.txt"), &format!("{to}/b.txt")]);
    assert!(complaint.contains("several sources need one"), "{complaint}");
    let complaint = fail(2, &["get", &server.url("/*.txt"), "-"]);
    assert!(complaint.contains("cat takes several"), "{complaint}");
    succeed(&["rm", &server.url("/[ab].txt")]);
    assert!(!export.join("a.txt").exists() && export.join("c.dat").exists());
    // Commands that make names take them as they stand.
    succeed(&["mkdir", &server.url("/new*")]);
    assert!(export.join("new*").is_dir());
}

/// The options are those of coreutils, and so is the result.
#[test]
fn listings_sort_and_descend() {
    let (server, export) = tree();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (name, seconds) in [("a.txt", 3_000_000), ("b.txt", 1_000_000), ("c.dat", 2_000_000)] {
        File::options().write(true).open(export.join(name)).unwrap().set_modified(at(seconds)).unwrap();
    }
    fs::write(export.join("d/large"), vec![1; 1536]).unwrap();
    let ls = |options: &str, path: &str| succeed(&["ls", options, &server.url(path)]);
    assert_eq!(ls("-S", "/[abc].*"), "a.txt\nb.txt\nc.dat\n");
    assert_eq!(ls("-Sr", "/[abc].*"), "c.dat\nb.txt\na.txt\n");
    assert_eq!(ls("-t", "/[abc].*"), "a.txt\nc.dat\nb.txt\n");
    assert_eq!(ls("-r1", "/[abc].*"), "c.dat\nb.txt\na.txt\n");
    let unsorted = ls("-U", "/");
    let unsorted: BTreeSet<&str> = unsorted.lines().collect();
    assert_eq!(unsorted, BTreeSet::from(["a.txt", "b.txt", "c.dat", "d", "link"]));
    assert_eq!(ls("-d", "/d"), "d\n");
    assert_eq!(ls("-ld", "/link").matches("link -> d").count(), 1);
    assert!(ls("-lh", "/d").contains(" 1.5K "));
    let url = |path: &str| server.url(path);
    let expected = format!(
        "{}:\na.txt\nb.txt\nc.dat\nd\nlink\n\n{}:\ne.txt\nf\nlarge\n\n{}:\ng.txt\n",
        url("/"),
        url("/d"),
        url("/d/f")
    );
    assert_eq!(ls("-R", "/"), expected);
    // Files come first, without a title.
    let several = succeed(&["ls", &url("/d/f"), &url("/a.txt")]);
    assert_eq!(several, format!("a.txt\n\n{}:\ng.txt\n", url("/d/f")));
    let listings = json(&["ls", "-R", &url("/d")])["listings"].clone();
    assert_eq!(listings[1]["entries"][0]["url"], url("/d/f/g.txt"));
    // Names for people; --help has no short form here.
    for command in ["ls", "du", "df"] {
        assert!(succeed(&[command, "--help"]).contains("-h, --human-readable"), "{command}");
    }
}

#[test]
fn links_are_shown_or_followed() {
    let (server, _export) = tree();
    let kind = |arguments: &[&str]| json(arguments)["entries"][0]["type"].clone();
    let link = server.url("/link");
    assert_eq!(kind(&["stat", &link]), "symbolic link");
    assert_eq!(kind(&["stat", "-L", &link]), "directory");
    assert!(succeed(&["stat", &link]).contains("Modify: 20"));
    let entry = json(&["stat", &server.url("/d")])["entries"][0].clone();
    assert_eq!(entry["fileid_text"], entry["fileid"].to_string());
    let (exact, whole) = (entry["mtime_exact"].as_str().unwrap(), entry["mtime"].as_str().unwrap());
    assert!(
        exact.starts_with(whole.trim_end_matches('Z')) && exact.len() == whole.len() + 10,
        "{exact} {whole}"
    );
}

/// Both commands change two equal trees to the same modes.
#[test]
fn modes_are_changed_as_by_chmod() {
    let (server, export) = tree();
    let twin = server.place.path().join("twin");
    other("cp", &["-a", "export", "twin"], server.place.path());
    for (change, path) in [
        ("600", "a.txt"),
        ("u+x", "a.txt"),
        ("-x", "a.txt"),
        ("a+rX", "d"),
        ("g=u,o=", "b.txt"),
        ("u=rwx,go=rX", "link"),
        ("2775", "d"),
        ("755", "d"),
        ("+t", "d"),
    ] {
        succeed(&["chmod", change, &server.url(&format!("/{path}"))]);
        other("chmod", &[change, path], &twin);
        let found = mode(&export.join(path).canonicalize().unwrap());
        assert_eq!(found, mode(&twin.join(path).canonicalize().unwrap()), "{change} {path}: {found:o}");
    }
    for change in ["go-rwx", "a+rX", "u-w"] {
        let done = json(&["chmod", "-R", change, &server.url("/d")])["done"].clone();
        assert_eq!(done.as_array().unwrap().len(), 4, "{done}");
        other("chmod", &["-R", change, "d"], &twin);
        for path in ["d", "d/e.txt", "d/f", "d/f/g.txt"] {
            let found = mode(&export.join(path));
            assert_eq!(found, mode(&twin.join(path)), "{change} {path}: {found:o}");
        }
    }
    let complaint = fail(4, &["chmod", "644", &server.url("/missing"), &server.url("/c.dat")]);
    assert!(complaint.contains("/missing"), "{complaint}");
    assert_eq!(mode(&export.join("c.dat")), 0o644);
}

#[test]
fn owners_are_changed_by_number_and_name() {
    let (server, export) = tree();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let owner = |path: &str| {
        let metadata = fs::symlink_metadata(export.join(path)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    succeed(&["chown", "12:34", &server.url("/a.txt")]);
    assert_eq!(owner("a.txt"), (12, 34));
    succeed(&["chown", ":56", &server.url("/a.txt")]);
    assert_eq!(owner("a.txt"), (12, 56));
    succeed(&["chown", "root:", &server.url("/a.txt")]);
    assert_eq!(owner("a.txt"), (0, 0));
    // A link is followed, but not with -h, and not in a tree.
    succeed(&["chown", "7", &server.url("/link")]);
    assert_eq!((owner("link").0, owner("d").0, owner("d/e.txt").0), (0, 7, 0));
    succeed(&["chown", "-h", "8", &server.url("/link")]);
    assert_eq!((owner("link").0, owner("d").0), (8, 7));
    symlink("../a.txt", export.join("d/l")).unwrap();
    succeed(&["chown", "-R", "9:9", &server.url("/d")]);
    assert_eq!(
        [owner("d"), owner("d/f/g.txt"), owner("d/l"), owner("a.txt")],
        [(9, 9), (9, 9), (9, 9), (0, 0)]
    );
}

/// The caller of AUTH_SYS is the one of the options, or of the URL.
#[test]
fn calls_are_made_by_the_user_that_is_named() {
    let (server, export) = tree();
    // Only root may claim to be somebody else on the server's own machine.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
    succeed(&["touch", "--uid", "4001", "--gid", "4002", &server.url("/by-options")]);
    succeed(&["touch", "--uid", "1", &server.url("/by-url?uid=4003&gid=4004")]);
    let owner = |name: &str| {
        let metadata = fs::metadata(export.join(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!((owner("by-options"), owner("by-url")), ((4001, 4002), (4003, 4004)));
    // Groups open what they may open, and the own ones are not claimed for somebody else.
    fs::write(export.join("secret"), "x").unwrap();
    std::os::unix::fs::chown(export.join("secret"), Some(0), Some(4005)).unwrap();
    fs::set_permissions(export.join("secret"), fs::Permissions::from_mode(0o040)).unwrap();
    let secret = server.url("/secret");
    fail(1, &["cat", "--uid", "4001", "--gid", "4002", &secret]);
    assert_eq!(succeed(&["cat", "--uid", "4001", "--gid", "4002", "--groups", "1,4005", &secret]), "x");
    // The URLs that commands print keep the user.
    let found = succeed(&["find", &server.url("/d?uid=4001&gid=4002"), "-name", "e.txt"]);
    assert_eq!(found, format!("{}\n", server.url("/d/e.txt?uid=4001&gid=4002")));
}

#[test]
fn times_are_changed_and_files_made() {
    let (server, export) = tree();
    let times = |name: &str| {
        let metadata = fs::metadata(export.join(name)).unwrap();
        (metadata.atime(), metadata.mtime(), metadata.mtime_nsec())
    };
    let url = |path: &str| server.url(path);
    succeed(&["touch", "-d", "2024-02-29T12:34:56.5Z", &url("/a.txt"), &url("/new")]);
    assert_eq!(times("a.txt"), (1_709_210_096, 1_709_210_096, 500_000_000));
    assert_eq!((times("new").1, fs::read(export.join("new")).unwrap().len()), (1_709_210_096, 0));
    succeed(&["touch", "-m", "-t", "200002290000", &url("/a.txt")]);
    assert_eq!(times("a.txt"), (1_709_210_096, 951_782_400, 0));
    succeed(&["touch", "-a", "-d", "@5", &url("/a.txt")]);
    assert_eq!(times("a.txt"), (5, 951_782_400, 0));
    succeed(&["touch", "-r", &url("/a.txt"), &url("/b.txt")]);
    assert_eq!(times("b.txt"), times("a.txt"));
    succeed(&["touch", &url("/b.txt")]);
    assert!(times("b.txt").1 > 1_700_000_000);
    assert_eq!(fs::read(export.join("a.txt")).unwrap(), b"aa");
    assert_eq!(json(&["touch", "-c", &url("/absent")])["done"].as_array().unwrap().len(), 0);
    assert!(!export.join("absent").exists());
    fail(1, &["touch", &url("/no/where")]);
}

#[test]
fn trees_are_searched() {
    let (server, export) = tree();
    fs::write(export.join("d/large"), vec![1; 3000]).unwrap();
    let old = SystemTime::now() - Duration::from_secs(5 * 86_400 + 10);
    File::options().write(true).open(export.join("a.txt")).unwrap().set_modified(old).unwrap();
    let found = |options: &[&str]| {
        let mut arguments = vec!["find".to_owned(), server.url("/")];
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        let printed = succeed(&arguments);
        let prefix = server.url("");
        let paths = printed.split(['\n', '\0']).filter(|line| !line.is_empty());
        paths.map(|path| path.strip_prefix(&prefix).unwrap().to_owned()).collect::<BTreeSet<String>>()
    };
    let set = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<BTreeSet<String>>();
    let all = [
        "/",
        "/.hidden.txt",
        "/a.txt",
        "/b.txt",
        "/c.dat",
        "/d",
        "/d/e.txt",
        "/d/f",
        "/d/f/g.txt",
        "/d/large",
        "/link",
    ];
    assert_eq!(found(&[]), set(&all));
    assert_eq!(found(&["-print0"]), set(&all));
    assert_eq!(found(&["-name", "*.txt", "-maxdepth", "1"]), set(&["/.hidden.txt", "/a.txt", "/b.txt"]));
    assert_eq!(found(&["--name", "?.txt", "--mindepth", "2"]), set(&["/d/e.txt", "/d/f/g.txt"]));
    assert_eq!(found(&["-iname", "LAR*"]), set(&["/d/large"]));
    assert_eq!(found(&["-type", "d"]), set(&["/", "/d", "/d/f"]));
    assert_eq!(found(&["-type", "l,d", "-maxdepth", "1"]), set(&["/", "/d", "/link"]));
    assert_eq!(found(&["-maxdepth", "0"]), set(&["/"]));
    assert_eq!(found(&["-type", "f", "-size", "+2k"]), set(&["/d/large"]));
    assert_eq!(
        found(&["-type", "f", "-size", "-2c", "-name", "*.txt"]),
        set(&["/.hidden.txt", "/b.txt", "/d/f/g.txt"])
    );
    assert_eq!(found(&["-size", "2c"]), set(&["/a.txt"]));
    assert_eq!(found(&["-mtime", "+4"]), set(&["/a.txt"]));
    assert_eq!(found(&["-mtime", "5"]), set(&["/a.txt"]));
    assert!(!found(&["-mtime", "-5"]).contains("/a.txt"));
    assert!(!found(&["-mmin", "-60"]).contains("/a.txt"));
    assert!(found(&["-newer", &server.url("/a.txt")]).contains("/b.txt"));
    assert!(!found(&["-newer", &server.url("/a.txt")]).contains("/a.txt"));
    // The local program agrees.
    let local = other("find", &[".", "-type", "f", "-size", "+0", "-name", "*.txt"], &export);
    let local: BTreeSet<String> = local.lines().map(|line| line.trim_start_matches('.').to_owned()).collect();
    assert_eq!(found(&["-type", "f", "-size", "+0", "-name", "*.txt"]), local);
}

/// The sums are those of `du`, which counts a file with several names once.
#[test]
fn space_is_counted_as_by_du() {
    let (server, export) = tree();
    fs::write(export.join("d/large"), vec![1; 100_000]).unwrap();
    fs::hard_link(export.join("d/large"), export.join("d/f/again")).unwrap();
    let lines = |options: &[&str]| {
        let mut arguments = vec!["du".to_owned()];
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        arguments.push(server.url("/"));
        let prefix = server.url("");
        succeed(&arguments)
            .replace(&prefix, ".")
            .replace("./\n", ".\n")
            .lines()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    for options in
        [vec![], vec!["-s"], vec!["-h"], vec!["--apparent-size"], vec!["-b"], vec!["-d", "1"], vec!["-sc"]]
    {
        let local = other("du", &[options.clone(), vec!["."]].concat(), &export);
        let local: BTreeSet<String> = local.lines().map(str::to_owned).collect();
        assert_eq!(lines(&options), local, "{options:?}");
    }
    assert!(lines(&["-a"]).iter().any(|line| line.ends_with("./d/e.txt")));
    let document = json(&["du", "-s", &server.url("/d/large"), &server.url("/d/f/again")]);
    assert_eq!(document["total"]["apparent_bytes"], 100_000, "{document}");
}

#[test]
fn file_systems_have_the_space_that_the_system_tells() {
    let (server, export) = tree();
    let url = server.url("/");
    let text = succeed(&["df", &url]);
    assert!(text.starts_with("Filesystem") && text.lines().next().unwrap().ends_with("Use%"), "{text}");
    let total = rustix::fs::statvfs(&export).unwrap();
    let total = total.f_blocks * total.f_frsize;
    let document = json(&["df", &url])["filesystems"][0].clone();
    assert_eq!(document["total_bytes"], total);
    assert!(text.contains(&format!(" {} ", total / 1024)), "{text}");
    assert!(succeed(&["df", "-h", &url]).contains("Avail"));
    assert!(succeed(&["df", "-i", &url, &url]).contains("IUse%"));
    fail(4, &["df", &url, &server.url("/missing")]);
}

/// `sha256sum` takes our lists, and we take its lists.
#[test]
fn checksums_are_those_of_sha256sum() {
    let (server, export) = tree();
    fs::write(export.join("d/odd\nna\\me"), "odd").unwrap();
    fs::write(export.join("d/large"), vec![7; 3 << 20]).unwrap();
    let url = |path: &str| server.url(path);
    let list = server.place.path().join("list");
    let file = list.to_str().unwrap();

    assert_eq!(succeed(&["checksum", &url("/a.txt")]), other("sha256sum", &["a.txt"], &export));
    assert_eq!(
        succeed(&["checksum", "-a", "sha512", &url("/a.txt")]),
        other("sha512sum", &["a.txt"], &export)
    );
    fs::write(&list, succeed(&["checksum", "-r", &url("/")])).unwrap();
    let checked = other("sha256sum", &["-c", file], &export);
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), 8, "{checked}");

    let paths = ["a.txt", "d/odd\nna\\me", "d/large", "./d/f/g.txt"];
    fs::write(&list, other("sha256sum", &paths, &export)).unwrap();
    let checked = succeed(&["checksum", "--check", file, &url("/")]);
    assert_eq!(checked, "a.txt: OK\nd/odd\\nna\\\\me: OK\nd/large: OK\n./d/f/g.txt: OK\n");
    fs::write(export.join("a.txt"), "other").unwrap();
    fs::remove_file(export.join("d/f/g.txt")).unwrap();
    let checked = crate::support::run(&["checksum", "-c", file, &url("/")]);
    assert_eq!(checked.status.code(), Some(4));
    let told = text(&checked.stdout);
    assert!(told.contains("a.txt: FAILED\n") && told.contains("g.txt: FAILED open or read\n"), "{told}");
    // Names in a list can be URLs.
    let sum = succeed(&["checksum", &url("/b.txt")]);
    fs::write(&list, format!("{}  {}\n", &sum[..64], url("/b.txt"))).unwrap();
    assert_eq!(succeed(&["checksum", "-c", file]), format!("{}: OK\n", url("/b.txt")));
    fs::write(&list, "no list\n").unwrap();
    assert!(fail(1, &["checksum", "-c", file, &url("/")]).contains("no line with a sha256 checksum"));
    assert!(fail(1, &["checksum", &url("/d")]).contains("add -r"));
}

#[test]
fn trees_are_copied_between_servers() {
    let (server, export) = tree();
    let second = Server::start();
    fs::write(export.join("d/large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(export.join("d/large"), export.join("d/f/again")).unwrap();
    symlink("e.txt", export.join("d/soft")).unwrap();
    fs::set_permissions(export.join("d/e.txt"), fs::Permissions::from_mode(0o604)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    File::options().write(true).open(export.join("d/e.txt")).unwrap().set_modified(old).unwrap();
    let url = |path: &str| server.url(path);

    for (target, there) in [(second.url("/"), second.directory()), (url("/inside"), export.join("inside"))] {
        if !there.exists() {
            succeed(&["mkdir", &target]);
        }
        let document = json(&["cp", "-rp", &url("/d"), &url("/*.txt"), &target]);
        let counts =
            ["files", "directories", "symlinks", "hard_links"].map(|name| document[name].as_u64().unwrap());
        assert_eq!(counts, [5, 2, 1, 1], "{document}");
        other("diff", &["-r", "--no-dereference", "d", there.join("d").to_str().unwrap()], &export);
        let copied = fs::metadata(there.join("d/e.txt")).unwrap();
        assert_eq!((copied.mode() & 0o777, copied.mtime()), (0o604, 1_000_000));
        let names = ["d/large", "d/f/again"].map(|name| fs::metadata(there.join(name)).unwrap().ino());
        assert_eq!(names[0], names[1]);
        assert_eq!(fs::read(there.join("b.txt")).unwrap(), b"b");
    }
    // One file, under a new name, over an old one, and through a link.
    succeed(&["cp", &url("/a.txt"), &url("/copy")]);
    succeed(&["cp", &url("/b.txt"), &url("/copy")]);
    assert_eq!(fs::read(export.join("copy")).unwrap(), b"b");
    succeed(&["cp", &url("/a.txt"), &url("/link")]);
    assert!(export.join("d/a.txt").exists());
    assert!(
        !fs::read_dir(&export).unwrap().any(|entry| entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains(".part"))
    );
}

#[test]
fn nothing_is_copied_onto_or_into_itself() {
    let (server, export) = tree();
    let url = |path: &str| server.url(path);
    assert!(fail(1, &["cp", &url("/a.txt"), &url("/a.txt")]).contains("same file"));
    fs::hard_link(export.join("a.txt"), export.join("other")).unwrap();
    assert!(fail(1, &["cp", &url("/a.txt"), &url("/other")]).contains("same file"));
    assert_eq!(fs::read(export.join("a.txt")).unwrap(), b"aa");
    let complaint = fail(4, &["cp", "-r", &url("/d"), &url("/d/f")]);
    assert!(complaint.contains("into itself"), "{complaint}");
    assert!(!export.join("d/f/d/f/d").exists());
    assert!(fail(1, &["cp", &url("/d"), &url("/new")]).contains("add -r"));
    assert!(fail(2, &["cp", &url("/a.txt"), &url("/b.txt"), &url("/c.dat")]).contains("several sources"));
    assert!(fail(1, &["cp", &url("/missing"), &url("/x")]).contains("no such file"));
    // Two sources do not get one name.
    fs::write(export.join("d/a.txt"), "x").unwrap();
    fs::create_dir(export.join("to")).unwrap();
    assert!(fail(4, &["cp", &url("/a.txt"), &url("/d/a.txt"), &url("/to")]).contains("another source"));
    assert_eq!(fs::read(export.join("to/a.txt")).unwrap(), b"aa");
}
