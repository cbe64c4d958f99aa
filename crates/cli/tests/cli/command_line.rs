//! Options, output, exit codes and signals of the real binary.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Server, command, fail, json, run, scratch, signal, succeed, text, until, wait};

#[test]
fn wrong_command_lines_are_told_what_to_type() {
    let host = "nfs://127.0.0.1:1/x";
    for (arguments, hint) in [
        (vec![], "Usage: rpcrdma"),
        (vec!["fetch"], "unrecognized subcommand"),
        (vec!["serve"], "<DIR|--export"),
        (vec!["conform"], "--server <HOST[:PORT]>|--client"),
        (vec!["conform", "--client", "--limit", "0"], "0 is not more than 0 seconds"),
        (vec!["ping", "h", "--timeout", "0"], "0 is not more than 0 seconds"),
        (vec!["ping", "h", "-c", "x"], "\"x\" is not a whole number"),
        (vec!["serve", "/", "--memory", "1X"], "1M or 2G"),
        (vec!["ping", "h", "--timeout", "5x"], "500ms, 10m or 2h"),
        (vec!["ping", "h", "-i", "1 s"], "500ms, 10m or 2h"),
        (vec!["ping", "h:x"], "\"x\" is not a port"),
        (vec!["exports", "nfs://h/p"], "HOST:PORT"),
        (vec!["ls", "nfs://h/p?version=4"], "version=3"),
        (vec!["ls", "nfs://h/p?dircache=0"], "mountport=PORT"),
        (vec!["ls", "nfs://h:1/p?nfsport=2"], "two ports"),
        (vec!["ls", host, "--uid", "no such user"], "user of this machine"),
        (vec!["ls", host, "--gid", "no such group"], "group of this machine"),
        (vec!["ls", host, "--groups", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"], "at most 16"),
        (vec!["ls", host, "--sec", "krb5", "--uid", "1"], "--uid is about AUTH_SYS"),
        (vec!["ls", "-R", "-d", host], "cannot be used with"),
        (vec!["ls", "-t", "-S", host], "cannot be used with"),
        (vec!["du", "-s", "-d", "1", host], "cannot be used with"),
        (vec!["chmod", "rwx", host], "u+rwX,go-w"),
        (vec!["chmod", "8", host], "u+rwX,go-w"),
        (vec!["chmod", "644"], "<URL>"),
        (vec!["chown", "no such user", host], "user of this machine"),
        (vec!["chown", ":", host], ":GROUP"),
        (vec!["touch", "-d", "yesterday", host], "2024-02-29T12:34:56Z"),
        (vec!["touch", "-t", "1", host], "MMDDhhmm"),
        (vec!["touch", "-t", "202402291234", "-d", "@0", host], "cannot be used with"),
        (vec!["find", host, "-type", "x"], "f, d, l"),
        (vec!["find", host, "-size", "1x"], "such as +10M"),
        (vec!["find", host, "-mtime", "x"], "+N (more)"),
        (vec!["find", host, "-name", "a["], "needs a ]"),
        (vec!["find", host, "-maxdepth", "x"], "not a whole number"),
        (vec!["checksum"], "URL"),
        (vec!["checksum", "-a", "md5", host], "sha256, sha512"),
        (vec!["checksum", "--check", "-", host, host], "one URL"),
        (vec!["cp", host], "<DEST>"),
        (vec!["cp", host, "/tmp"], "write nfs://HOST/PATH"),
        (vec!["serve", "/", "--export", "data=/"], "begin with"),
        (vec!["serve", "/", "--export", "/a=/,rx"], "ro, rw"),
        (vec!["serve", "/", "--inline", "1000"], "multiple of 1024"),
        (vec!["serve", "/", "--credits", "0"], "1 to 1024"),
        (vec!["serve", "/", "--idle", "0.5"], "less than 1 second"),
        (vec!["serve", "/", "--max-payload", "2M"], "1048576"),
        (vec!["serve", "/", "--max-connections", "0"], "1 to 32768"),
        (vec!["serve", "/", "--max-connections", "9000"], "at most 8192 are possible, whose Receives"),
        (vec!["serve", "/", "--max-connections-per-peer", "40000"], "1 to 32768"),
        (
            vec!["serve", "/", "--max-half-open", "9000"],
            "at most 8192 are possible, which is --max-connections",
        ),
        (vec!["serve", "/", "--set-up", "0"], "less than 1 second"),
        (vec!["serve", "/", "--tcp-idle", "x"], "not a number of seconds"),
        (vec!["serve", "/", "--stall", "0.1"], "less than 1 second"),
        (vec!["serve", "/", "--least-rate", "1K"], "1024 is not from 4096 (4K)"),
        (vec!["serve", "/", "--max-arguments", "4K"], "from 1052672 (--max-payload and 4K) to 134217728"),
        (vec!["serve", "/", "--max-read-chunks", "1"], "2 to 256"),
        (vec!["serve", "/", "--max-write-chunks", "0"], "1 to 256"),
        (vec!["serve", "/", "--max-segments", "15"], "16 to 4096"),
        (vec!["serve", "/", "--memory", "1M"], "1048576 is less than 16777216 (16M)"),
        (vec!["serve", "/", "--memory-per-peer", "1G"], "at most 536870912 are possible, which is --memory"),
        (vec!["serve", "/", "--reply-cache", "1M"], "1048576 is less than 2097152 (2M)"),
        (vec!["serve", "/", "--listen", "no such host"], "not an address or host name"),
        (vec!["serve", "/", "--listen", "127.0.0.1:99999"], "its port is not from 0 to 65535"),
        (vec!["serve", "/", "--listen", "verbs:127.0.0.1:x"], "after iwarp:, verbs: or auto:"),
        (vec!["serve", "/", "--tcp", "a b"], "127.0.0.1:20048"),
        (vec!["bench", "--server", "--listen", "a b"], "127.0.0.1:20060"),
        (vec!["conform", "--client", "--listen", "a b"], "127.0.0.1:20049"),
        (
            vec!["serve", "/", "--listen", "127.0.0.1:1", "--listen", "tcp:127.0.0.1:2"],
            "\"tcp:127.0.0.1:2\" is not",
        ),
        (vec!["serve", "/", "--provider", "roce"], "\"roce\" is not auto, iwarp, verbs, or verbs:DEVICE"),
        (
            vec!["serve", "/", "--provider", "verbs", "--no-crc"],
            "--no-crc has no meaning with the provider verbs",
        ),
        (vec!["serve", "/", "--listen", "iwarp:127.0.0.1:0", "--tos", "8"], "--tos is about RDMA adapters"),
        (vec!["serve", "/", "--tos", "256"], "allowed are 0 to 255, or 0x00 to 0xff"),
        (vec!["ls", host, "--provider", "verbs:"], "\"verbs:\" is not auto"),
        (
            vec!["ls", host, "--provider", "verbs", "--no-crc"],
            "--no-crc has no meaning with the provider verbs",
        ),
        (vec!["ping", "h", "--provider", "iwarp", "--no-windows"], "--no-windows is about RDMA adapters"),
        (vec!["ping", "h", "--proto", "tcp", "--provider", "iwarp"], "--provider is about RDMA"),
        (vec!["ping", "h", "--proto", "tcp", "--tos", "0"], "--tos is about RDMA"),
        (
            vec!["conform", "--list", "--server", "h", "--provider", "iwarp", "--tos", "1"],
            "--tos is about RDMA adapters",
        ),
        (vec!["serve", "/", "--tcp", "127.0.0.1:0", "--no-tcp"], "cannot be used with"),
        (vec!["ls"], "<URL>"),
        (vec!["ls", "/tmp"], "write nfs://HOST/PATH"),
        (vec!["ls", "nfs://::1/"], "needs brackets"),
        (vec!["mkdir", "nfs://h/a?b"], "%3F"),
        (vec!["get", "somewhere"], "nothing to fetch"),
        (vec!["get", host, "a", "b"], "last operand"),
        (vec!["get", host, host, "/nonexistent"], "not a directory"),
        (vec!["put", "a"], "<URL>"),
        (vec!["mkdir", "-m", "999", host], "octal"),
        (vec!["ln", "target", host], "add -s"),
        (vec!["ping", "h/path"], "HOST:PORT"),
        (vec!["ping", "h", "-i", "-1"], "unexpected argument"),
        (vec!["bench", "--rounds", "0"], "1 to 99"),
        (vec!["bench", "--depth", "4"], "name it, as rpcrdma bench HOST"),
        (vec!["bench", "--server", "--reverse"], "name it, as rpcrdma bench HOST"),
        (vec!["bench", "--server", "h"], "cannot be used with"),
        (vec!["bench", "h", "--rounds", "3"], "cannot be used with"),
        (vec!["bench", "h", "--listen", "127.0.0.1:0"], "cannot be used with"),
        (vec!["bench", "h", "--memory-limit", "8M"], "cannot be used with"),
        (vec!["bench", "--connection-limit", "8"], "--server"),
        (vec!["bench", "--server", "--interval", "1"], "cannot be used with"),
        (vec!["bench", "h", "--size", "2M"], "not from 1 to 1048576"),
        (vec!["bench", "h", "--depth", "0"], "1 to 1024"),
        (vec!["bench", "h", "--interval", "0.001"], "at least 0.01"),
        (vec!["bench", "h", "-R", "--only", "write"], "nothing is left to measure"),
        (vec!["bench", "--interval", "1"], "HOST"),
        (vec!["bench", "--server", "--listen", "127.0.0.1:65535"], "two ports after it"),
        (vec!["bench", "--server", "--memory-limit", "1M"], "4194304"),
        (vec!["bench", "--provider", "iwarp"], "no meaning on the loopback interface"),
        (vec!["bench", "wire", "--only", "write", "--reverse"], "nothing is left to measure"),
        (vec!["cp", "--partial", host, host], "unexpected argument '--partial'"),
        (vec!["put", "--partial", "--in-place", "f", host], "cannot be used with '--in-place'"),
        (vec!["bench", "roundtrips", "--distance", "0"], "not from 0.001 to 20000"),
        (vec!["bench", "verbs", "--address", "0.0.0.0"], "an address of this machine"),
        (vec!["bench", "verbs", "--address", "localhost"], "invalid value 'localhost'"),
        (vec!["bench", "verbs", "--provider", "iwarp", "--no-windows"], "no meaning with the provider iwarp"),
        (vec!["bench", "roundtrips", "--svg", "f", "--distance", "1"], "cannot be used with"),
        (vec!["bench", "roundtrips", "--iwarp", "--bandwidth", "1"], "cannot be used with"),
        (vec!["bench", "roundtrips", "--iwarp", "--delay", "5", "--distance", "1"], "cannot be used with"),
        (vec!["bench", "roundtrips", "--iwarp", "--delay", "0.5"], "not from 1 to 1000"),
        (vec!["bench", "roundtrips", "--delay", "5"], "--iwarp"),
        (vec!["--proto", "udp", "ls", host], "--proto"),
        (vec!["ls", host, "--proto", "udp"], "rdma, tcp"),
    ] {
        let complaint = fail(2, &arguments);
        assert!(complaint.contains(hint), "{arguments:?}: {complaint}");
    }
}

#[test]
fn help_is_complete() {
    let help = succeed(&["--help"]);
    for word in ["Exit codes", "RPCRDMA_LOG", "nfs://HOST[:PORT]/PATH", "serve", "bench"] {
        assert!(help.contains(word), "{word}");
    }
    for name in [
        "serve", "exports", "ls", "stat", "cat", "get", "put", "mkdir", "rm", "mv", "ln", "ping", "bench",
        "conform", "devices", "xdrgen", "cp", "chmod", "chown", "touch", "find", "du", "df", "checksum",
    ] {
        let help = succeed(&[name, "--help"]);
        assert!(help.contains("Usage: rpcrdma"), "{name}");
    }
}

/// A description becomes Rust on standard output; a wrong one is a line with its place, and nothing is printed.
#[test]
fn xdrgen_prints_rust() {
    let directory = scratch();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(
        file("kv.x"),
        "typedef opaque key<64>;\nprogram KV { version V { key GET(key) = 1; } = 1; } = 0x20000001;",
    )
    .unwrap();
    let code = succeed(&["xdrgen", &file("kv.x")]);
    assert!(code.starts_with("// Generated by rpcrdma-xdrgen from kv.x.\n"), "{code}");
    assert!(code.contains("pub struct Key(#[xdr(max = 64)] pub Bytes);\n"), "{code}");
    assert!(code.contains("fn get = 1, Get(Key) -> Key, State;\n"), "{code}");

    fs::write(file("kv.toml"), "[procedures]\nGET = { effect = \"idempotent\" }").unwrap();
    let code = succeed(&["xdrgen", "--marks", &file("kv.toml"), "--crate", "crate::rpc", &file("kv.x")]);
    assert!(code.contains("fn get = 1, Get(Key) -> Key, Idempotent;\n"), "{code}");
    assert!(code.contains("\ncrate::rpc::program! {\n"), "{code}");

    fs::write(file("wrong.x"), "const A = 1;\nconst A 2;").unwrap();
    let complaint = fail(1, &["xdrgen", &file("wrong.x")]);
    assert!(complaint.ends_with("wrong.x:2:9: expected `=`, found the number `2`\n"), "{complaint}");
    let complaint = fail(1, &["xdrgen", "--marks", &file("none.toml"), &file("kv.x")]);
    assert!(complaint.contains("none.toml: No such file"), "{complaint}");
    assert!(fail(2, &["xdrgen", "--crate", "a b", &file("kv.x")]).contains("`a b` is no path of a crate"));
    assert!(fail(2, &["xdrgen", "--json", &file("kv.x")]).contains("no JSON form"));
    assert!(fail(2, &["xdrgen"]).contains("<FILE>"));
    assert!(fail(1, &["xdrgen", &file("none.x")]).contains("none.x: No such file"));
    assert!(fail(1, &["xdrgen", &file("")]).contains("Is a directory"));
    let complaint = fail(1, &["xdrgen", "/dev/zero"]);
    assert!(complaint.contains("/dev/zero:1:1: the file has more than 1048576 bytes"), "{complaint}");
}

/// `-` is standard input. A reader of the code may leave.
#[test]
fn xdrgen_reads_standard_input() {
    let run = |text: &str, close: bool| {
        let mut child = command(&["xdrgen", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if close {
            drop(child.stdout.take());
        }
        // A text that is too long is not read to its end.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        child.wait_with_output().unwrap()
    };
    let output = run("const A = 1;", false);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text(&output.stdout),
        "// Generated by rpcrdma-xdrgen from stdin.\n\n/// `A`.\npub const A: u32 = 1;\n"
    );
    let output = run("const A;", false);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(text(&output.stderr).ends_with("stdin:1:8: expected `=`, found `;`\n"), "{output:?}");
    let output = run(&" ".repeat(3 << 20), false);
    assert!(text(&output.stderr).contains("stdin:1:1: the file has more than"), "{output:?}");
    let output = run("const A = 1;", true);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()));
}

/// I6: the help names all limits with defaults and units.
#[test]
fn i6_help_shows_every_limit_of_a_server() {
    let help = succeed(&["serve", "--help"]);
    for heading in ["Limits of connections:", "Limits of calls:", "Limits of memory:"] {
        assert!(help.contains(heading), "{heading}");
    }
    for (option, unit, default) in [
        ("--max-connections", "COUNT", "at most 8192]"),
        ("--max-connections-per-peer", "COUNT", "5120 with its default]"),
        ("--max-half-open", "COUNT", "[default: 64]"),
        ("--set-up", "SECONDS", "[default: 10]"),
        ("--idle", "SECONDS", "[default: 600]"),
        ("--tcp-idle", "SECONDS", "[default: 360]"),
        ("--stall", "SECONDS", "[default: 60 for RDMA, 30 for TCP]"),
        ("--least-rate", "BYTES", "[default: 8K]"),
        ("--credits", "COUNT", "[default: 64]"),
        ("--least-credits", "COUNT", "[default: 2]"),
        ("--inline", "BYTES", "[default: 4096]"),
        ("--max-payload", "BYTES", "[default: 1M]"),
        ("--max-arguments", "BYTES", "[default: --max-payload + 64K]"),
        ("--max-read-chunks", "COUNT", "[default: 16]"),
        ("--max-write-chunks", "COUNT", "[default: 16]"),
        ("--max-segments", "COUNT", "[default: 256]"),
        ("--io-threads", "COUNT", "[default: 8 for each processor, from 32 to 128]"),
        ("--flush-wait", "SECONDS", "[default: 60]"),
        ("--memory", "BYTES", "[default: 512M]"),
        ("--memory-per-peer", "BYTES", "[default: a quarter of --memory]"),
        ("--reply-cache", "BYTES", "[default: 128M]"),
    ] {
        let (_, rest) =
            help.split_once(&format!("{option} <{unit}>")).unwrap_or_else(|| panic!("{option} in {unit}"));
        let own = rest.split("\n      --").next().unwrap();
        let own: Vec<&str> = own.split_whitespace().collect();
        assert!(own.join(" ").contains(default), "{option}: {own:?}");
    }
}

/// Rights belong to a thread, and threads that it starts inherit them.
#[test]
fn every_thread_of_a_server_has_given_up_rights() {
    // Capabilities to act as callers, to open files, and for callers that are root (`capabilities`(7)).
    const KEPT: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 27;
    let server = Server::start();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", server.process())).unwrap() {
        // A thread may have ended since.
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
        for set in ["CapEff:", "CapPrm:", "CapInh:"] {
            assert_eq!(u64::from_str_radix(field(set), 16).unwrap() & !KEPT, 0, "{status}");
        }
        threads += 1;
    }
    assert!(threads > 1);
}

#[test]
fn a_refused_mount_is_one_line_with_time_and_address() {
    let place = scratch();
    let closed = format!("/closed={},allow=192.0.2.0/24", place.path().display());
    let server = Server::start_with(&["--export", &closed]);
    fail(1, &["ls", &server.url("/closed/")]);
    let (_, log) = server.stop("TERM");
    let refused: Vec<&str> =
        log.lines().filter(|line| line.contains("refused mount from 127.0.0.1:")).collect();
    assert_eq!(refused.len(), 1, "{log}");
    // For example 2026-01-31T12:00:00.123456Z.
    let (time, rest) = refused[0].split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "{log}");
    assert!(rest.starts_with("warn rpcrdma::mounts: ") && rest.contains("of \"/closed"), "{log}");
}

/// Connects, and sends nothing. Reads fail after a time that is long enough for everything that a server does.
fn silent(to: &str) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Waits until the server closes the connection, in order or not: the reaction of the other end is not under test.
fn is_closed(mut stream: TcpStream) {
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the connection is open: {other:?}"),
    }
}

/// I6: only so many connections can be half open, and the next one is refused although no time passes.
#[test]
fn i6_half_open_connections_are_bounded_as_told() {
    let server = Server::start_with(&["--max-half-open", "1", "--set-up", "3600"]);
    let first = silent(server.rdma());
    is_closed(silent(server.rdma()));
    first.set_nonblocking(true).unwrap();
    assert_eq!(first.peek(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
}

/// I6: a connection is half open for as long as told.
#[test]
fn i6_the_time_of_half_open_connections_is_bounded_as_told() {
    let server = Server::start_with(&["--max-half-open", "1", "--set-up", "1"]);
    let begin = Instant::now();
    is_closed(silent(server.rdma()));
    // The server's clock begins a little later than this one, and the message about the end may take any time.
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    succeed(&["ping", "-c", "1", server.rdma()]);
}

/// I6: over TCP nothing is half open. Two connections of one address exist, and the third is refused.
#[test]
fn i6_connections_of_an_address_are_bounded_as_told() {
    let bounded = ["--max-connections", "3", "--max-connections-per-peer", "2"];
    let server = Server::start_with(&bounded);
    let idle: Vec<TcpStream> = (0..2).map(|_| silent(server.tcp())).collect();
    is_closed(silent(server.tcp()));
    drop(idle);
    succeed(&["ping", "-c", "1", "--proto", "tcp", server.tcp()]);
}

#[test]
fn commands_have_as_many_connections_as_they_are_told() {
    let server = Server::start();
    fs::write(server.directory().join("f"), vec![7; 3 << 20]).unwrap();
    let url = server.url("/f");
    for option in ["--connections", "--nconnect"] {
        let output = run(&["-v", "cat", option, "3", &url]);
        let told = text(&output.stderr);
        assert!(output.status.success() && output.stdout == vec![7; 3 << 20], "{told}");
        assert_eq!(told.matches("RDMA connection ended calls=").count(), 3, "{told}");
    }
    fail(2, &["cat", "--connections", "17", &url]);
}

#[test]
fn a_command_goes_on_with_the_connections_that_the_server_takes() {
    for proto in ["rdma", "tcp"] {
        let server = Server::start_with(&["--max-connections", "3", "--max-connections-per-peer", "3"]);
        fs::write(server.directory().join("f"), vec![7; 3 << 20]).unwrap();
        let url = if proto == "rdma" { server.url("/f") } else { format!("nfs://{}/f", server.tcp()) };
        let output = run(&["cat", "--proto", proto, "--connections", "5", &url]);
        let told = text(&output.stderr);
        assert!(output.status.success() && output.stdout == vec![7; 3 << 20], "{told}");
        assert!(told.contains("takes 3 of 5 connections"), "{told}");
    }
}

/// I6: idle connections end after the time that was told.
#[test]
fn i6_idle_connections_end_as_told() {
    let server = Server::start_with(&["--tcp-idle", "1"]);
    is_closed(silent(server.tcp()));
    succeed(&["ping", "-c", "1", "--proto", "tcp", server.tcp()]);
}

#[test]
fn exit_codes() {
    let server = Server::start();
    fs::write(server.directory().join("there"), "x").unwrap();
    let (there, missing) = (server.url("/there"), server.url("/missing"));

    let complaint = fail(1, &["cat", &missing]);
    assert!(complaint.contains("NFS3ERR_NOENT") && complaint.lines().count() == 1, "{complaint}");
    let complaint = fail(4, &["stat", &there, &missing]);
    assert!(complaint.contains("/missing"), "{complaint}");
    fail(1, &["stat", &missing, &missing]);
    fail(1, &["rm", &missing]);
    succeed(&["rm", "-f", &missing]);
    fail(1, &["get", &missing, "/nonexistent/place"]);

    // No listener.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for name in ["ls", "stat", "cat", "rm"] {
        let complaint = fail(3, &[name, &format!("nfs://{free}/x")]);
        assert!(complaint.contains("cannot connect") && complaint.contains("serve"), "{complaint}");
        assert_eq!(complaint.matches("cannot connect").count(), 1, "{complaint}");
    }
    fail(3, &["ping", &free.to_string()]);
    fail(3, &["exports", "no-such-host.invalid"]);
    // A listener of another protocol is told at once, not when the time is over.
    let (tcp, rdma) = (server.tcp().to_owned(), server.rdma().to_owned());
    let began = Instant::now();
    let complaint = fail(3, &["ls", &format!("nfs://{tcp}/")]);
    assert!(complaint.contains("--proto tcp"), "{complaint}");
    for arguments in [
        vec!["ls", &server.url("/")],
        vec!["exports", &rdma],
        vec!["ping", &rdma],
        vec!["rm", &server.url("/x")],
    ] {
        let complaint = fail(3, &[arguments.clone(), vec!["--proto", "tcp"]].concat());
        let told = "over tcp: an RDMA listener (software iWARP) is there; leave --proto tcp out";
        assert!(complaint.contains(told) && complaint.lines().count() == 1, "{complaint}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// Few descriptors are told, and so is a full disk behind standard output.
#[test]
fn what_the_system_refuses_is_told() {
    let server = Server::start();
    let url = server.url("/");
    let limited = |limit: &str| {
        let script = format!("ulimit -n {limit}; exec {} ls {url}", env!("CARGO_BIN_EXE_rpcrdma"));
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let refused = limited("6");
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("ulimit -n 1024") && complaint.lines().count() == 1, "{complaint}");
    // The test itself may have handed on some.
    assert!(limited("24").status.success());
    // A limit of file sizes ends neither the command nor its order.
    fs::write(server.directory().join("long"), vec![7; 200 << 10]).unwrap();
    let place = crate::support::scratch();
    let script = format!(
        "ulimit -f 100; exec {} get {} {}/",
        env!("CARGO_BIN_EXE_rpcrdma"),
        server.url("/long"),
        place.path().display()
    );
    let refused = Command::new("sh").args(["-c", &script]).output().unwrap();
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("File too large") && complaint.lines().count() == 1, "{complaint}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left");
    // A pipe at the server has no content to print.
    assert!(Command::new("mkfifo").arg(server.directory().join("pipe")).status().unwrap().success());
    for words in [&["cat"][..], &["get"]] {
        let rest: &[&str] = if words == ["get"] { &["-"] } else { &[] };
        let url = server.url("/pipe");
        let complaint = fail(1, &[words, &[url.as_str()], rest].concat());
        assert!(complaint.contains("is not a regular file"), "{complaint}");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    fs::write(server.directory().join("f"), "").unwrap();
    let mut child = command(&["ls", &url]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(1));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(complaint.contains("cannot write to standard output"), "{complaint}");
}

#[test]
fn names_at_a_server() {
    let server = Server::start();
    let export = server.directory();
    let url = |path: &str| server.url(path);

    succeed(&["mkdir", &url("/a"), &url("/b")]);
    fail(1, &["mkdir", &url("/a")]);
    let complaint = fail(1, &["mkdir", &url("/x/y")]);
    assert!(complaint.contains("; -p makes"), "{complaint}");
    succeed(&["mkdir", "-p", &url("/a/b/c/d"), &url("/a")]);
    assert!(export.join("a/b/c/d").is_dir());

    fs::write(export.join("f"), "content").unwrap();
    assert_eq!(succeed(&["cat", &url("/f"), &url("/f")]), "contentcontent");
    succeed(&["mv", &url("/f"), &url("/g")]);
    succeed(&["mv", &url("/g"), &url("/a")]);
    assert!(export.join("a/g").is_file());
    let complaint = fail(2, &["mv", &url("/a/g"), &url("/b"), &url("/nothing")]);
    assert!(complaint.contains("not a directory"), "{complaint}");

    succeed(&["ln", &url("/a/g"), &url("/hard")]);
    assert_eq!(fs::metadata(export.join("hard")).unwrap().nlink(), 2);
    succeed(&["ln", "-s", "../some where", &url("/soft")]);
    assert_eq!(fs::read_link(export.join("soft")).unwrap().to_str(), Some("../some where"));
    succeed(&["ln", "-s", "/x/y", &url("/a")]);
    assert!(export.join("a/y").is_symlink());

    // The complaint names what is missing.
    for command in ["mv", "ln"] {
        let complaint = fail(1, &[command, &url("/a/g"), &url("/no/where")]);
        let missing = format!("rpcrdma: {}: no such file", url("/no/where"));
        assert!(complaint.starts_with(&missing) && complaint.contains("its directory"), "{complaint}");
        let complaint = fail(1, &[command, &url("/nothing"), &url("/x")]);
        let missing = format!("rpcrdma: {}: no such file", url("/nothing"));
        assert!(complaint.starts_with(&missing) && !complaint.contains("its directory"), "{complaint}");
    }

    let done = |arguments: &[&str]| json(arguments)["done"].clone();
    assert_eq!(done(&["mkdir", &url("/j"), &url("/k")])[1]["url"], url("/k"));
    fs::write(export.join("j/f"), "").unwrap();
    let moved = done(&["mv", &url("/j/f"), &url("/k")]);
    assert_eq!((&moved[0]["url"], &moved[0]["to"]), (&url("/j/f").into(), &url("/k/f").into()));
    let linked = done(&["ln", "-s", "f", &url("/k/l")]);
    assert_eq!((&linked[0]["url"], &linked[0]["to"]), (&url("/k/l").into(), &"f".into()));
    assert_eq!(done(&["rm", "-r", &url("/j"), &url("/k")]).as_array().unwrap().len(), 2);
    // Nothing is done for a name that is there, or that is not; what was done is told even if the rest fails.
    assert_eq!(done(&["rm", "-f", &url("/never")]).as_array().unwrap().len(), 0);
    assert_eq!(done(&["mkdir", "-p", &url("/a")]).as_array().unwrap().len(), 0);
    let output = run(&["mkdir", "--json", "--timeout", "1", &url("/j"), "nfs://127.0.0.1:1/x"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains(&url("/j")), "{output:?}");
    fs::create_dir_all(export.join("k/j/full")).unwrap();
    let complaint = fail(1, &["mv", &url("/j"), &url("/k")]);
    assert!(complaint.starts_with(&format!("rpcrdma: {}: ", url("/k/j"))), "{complaint}");
    succeed(&["rm", "-r", &url("/j"), &url("/k")]);
    assert!(fail(2, &["cat", "--json", &url("/a/g")]).contains("--json"));

    let complaint = fail(1, &["ln", &url("/a"), &url("/to_a")]);
    assert!(complaint.contains("/a: the object is a directory"), "{complaint}");
    let complaint = fail(1, &["rm", &url("/a")]);
    assert!(complaint.contains("-r"), "{complaint}");
    let complaint = fail(1, &["rm", "-r", &url("/")]);
    assert!(complaint.contains("root"), "{complaint}");
    // The target of a link stays.
    fs::create_dir(export.join("target")).unwrap();
    fs::write(export.join("target/kept"), "").unwrap();
    symlink("../target", export.join("a/link")).unwrap();
    succeed(&["rm", "-r", &url("/a"), &url("/b")]);
    assert!(!export.join("a").exists());
    assert!(export.join("target/kept").exists());
}

/// Linux `siw` may close its listener over a connection that ends before its Reply. So a command whose time is over
/// stays until the Reply has come.
#[test]
fn a_set_up_outlasts_the_timeout_of_its_command() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut ping = command(&["ping", "--timeout", "0.1", &to]).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut header = [0; 20];
    stream.read_exact(&mut header).unwrap();
    stream.read_exact(&mut vec![0; usize::from(header[19])]).unwrap();
    // No byte arrives, and no end, although the time of the command passes.
    stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    let early = stream.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(early, Err(ErrorKind::WouldBlock)), "{early:?}");
    stream.write_all(b"MPA ID Rep Frame\x50\x02\0\x04\0\x08\0\x08").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    is_closed(stream);
    assert_eq!(wait(&mut ping, Duration::from_secs(20)).code(), Some(3));
    let mut told = String::new();
    ping.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("cannot connect to"), "{told}");
}

/// The search for MOUNT has the time limit of the command, and counters are logged at the end of `cat`.
#[test]
fn a_silent_mount_service_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let url = format!("nfs://127.0.0.1:{port}/");
    let complaint = fail(3, &["ls", "--timeout", "0.1", "--proto", "tcp", "--mountport", &port, &url]);
    assert_eq!(complaint.matches("no reply within 100ms").count(), 2, "{complaint}");
}

#[test]
fn commands_end_their_connections_in_order() {
    let server = Server::start();
    fs::write(server.directory().join("f"), "x").unwrap();
    let (url, copy) = (server.url("/f"), server.url("/g"));
    let to = server.directory().join("copy");
    let to = to.to_str().unwrap();
    for command in [
        vec!["cat", &url],
        vec!["get", &url, "-"],
        vec!["get", &url, to],
        vec!["put", to, &copy],
        vec!["ls", &url],
        vec!["stat", &url],
        vec!["rm", &copy],
    ] {
        let output = run(&[vec!["-v"], command].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && told.contains("RDMA connection ended calls="), "{told}");
    }
}

#[test]
fn listings() {
    let server = Server::start();
    fs::write(server.directory().join("b"), "12345").unwrap();
    fs::write(server.directory().join(".hidden"), "").unwrap();
    fs::create_dir(server.directory().join("a")).unwrap();
    symlink("b", server.directory().join("c")).unwrap();
    fs::write(server.directory().join("spa ce"), "").unwrap();

    assert_eq!(succeed(&["ls", &server.url("/")]), "a\nb\nc\nspa ce\n");
    assert!(succeed(&["ls", "-a", &server.url("/")]).starts_with(".hidden\n"));
    assert_eq!(succeed(&["ls", &server.url("/b")]), "b\n");
    let long = succeed(&["ls", "-l", &server.url("/")]);
    assert!(long.lines().next().unwrap().starts_with("drwx"), "{long}");
    assert!(long.contains(" 5 20") && long.contains("c -> b"), "{long}");

    let document = json(&["ls", "-l", &server.url("/")]);
    let entries = document["listings"][0]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[1]["name"], "b");
    assert_eq!(entries[1]["size"], 5);
    assert_eq!(entries[2]["target"], "b");
    assert_eq!(entries[3]["url"], server.url("/spa%20ce"));
    // The URL in a listing leads back to the entry.
    assert_eq!(json(&["stat", entries[3]["url"].as_str().unwrap()])["entries"][0]["name"], "spa ce");
    assert!(succeed(&["stat", &server.url("/c")]).contains("symbolic link"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let server = Server::start();
    for index in 0..1500 {
        fs::write(server.directory().join(format!("{index}-{}", "x".repeat(100))), "").unwrap();
    }
    fs::write(server.directory().join("large"), vec![b'\n'; 4 << 20]).unwrap();
    for arguments in [vec!["ls", "-l", "/"], vec!["cat", "/large"]] {
        let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let path = arguments.pop().unwrap();
        arguments.push(server.url(&path));
        let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let status = wait(&mut child, Duration::from_secs(20));
        let mut complaint = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        // As the shell reports other commands, which SIGPIPE ends.
        assert_eq!((status.code(), complaint.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

/// A file written by one export is read by the other, which may be read-only.
#[test]
fn a_directory_is_exported_twice() {
    let shared = scratch();
    let directory = shared.path().display();
    let (first, second) = (format!("/a={directory},squash=none"), format!("/b={directory},ro"));
    let server = Server::start_with(&["--export", &first, "--export", &second]);
    fs::write(shared.path().join("there"), "content").unwrap();
    for name in ["/a/there", "/b/there"] {
        assert_eq!(succeed(&["cat", &server.url(name)]), "content");
    }
    succeed(&["mkdir", &server.url("/a/made")]);
    assert!(shared.path().join("made").is_dir());
    fail(1, &["mkdir", &server.url("/b/refused")]);
    assert!(!shared.path().join("refused").exists());
}

#[test]
fn ping_and_exports() {
    let extra = scratch();
    let option = format!("/second={},ro,allow=127.0.0.0/8", extra.path().display());
    let server = Server::start_with(&["--export", &option]);
    for (host, more) in [(server.rdma(), vec![]), (server.tcp(), vec!["--proto", "tcp"])] {
        let document = json(&[vec!["ping", host, "-c", "20", "-i", "0"], more.clone()].concat());
        assert_eq!((&document["sent"], &document["received"]), (&20.into(), &20.into()));
        let trips = &document["microseconds"];
        let (min, p50, max) = (trips["min"].as_f64(), trips["p50"].as_f64(), trips["max"].as_f64());
        assert!(min > Some(0.0) && min <= p50 && p50 <= max, "{document}");
        let lines = succeed(&[vec!["ping", host, "-c", "2", "-i", "0.01"], more.clone()].concat());
        assert!(lines.contains("reply 2 from") && lines.contains("p99"), "{lines}");

        let document = json(&[vec!["exports", host], more].concat());
        assert_eq!(document["exports"].as_array().unwrap().len(), 2);
        assert_eq!(document["exports"][1]["name"], "/second");
        assert_eq!(document["exports"][1]["groups"][0], "127.0.0.0/8");
    }
    // Call of a program that the server does not have.
    let complaint = fail(1, &["ping", server.rdma(), "-c", "1", "--program", "400000"]);
    assert!(complaint.contains("PROG_UNAVAIL"), "{complaint}");

    let complaint = fail(1, &["mkdir", &server.url("/second/x")]);
    assert!(complaint.contains("NFS3ERR_ROFS"), "{complaint}");
}

#[test]
fn crcs_are_off_only_if_neither_side_asks() {
    let cautious = Server::start();
    let trusting = Server::start_with(&["--no-crc"]);
    for (server, option, crc) in [
        (&cautious, None, true),
        (&cautious, Some("--no-crc"), true),
        (&trusting, None, true),
        (&trusting, Some("--no-crc"), false),
    ] {
        let mut arguments = vec!["-vv", "ping", "-c", "1", server.rdma()];
        arguments.extend(option);
        let output = run(&arguments);
        assert!(output.status.success());
        let events = text(&output.stderr);
        assert!(events.contains(&format!("crc={crc}")), "{option:?}: {events}");
    }
}

#[test]
fn how_calls_travel() {
    let server = Server::start();
    let place = scratch();
    let file = place.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let names = server.directory().join("names");
    fs::create_dir(&names).unwrap();
    for index in 0..200 {
        fs::write(names.join(format!("{index}-{}", "n".repeat(200))), "").unwrap();
    }
    let verbose = |arguments: &[&str]| {
        let output = run(&[&["-v"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let line = |lines: &str, name: &str| {
        let start = format!("call {name} ");
        lines
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("{name}: {lines}"))
            .to_owned()
    };
    let put = verbose(&["put", file, &server.url("/file")]);
    let write = line(&put, "WRITE");
    assert!(
        write.contains("1048576 B by RDMA Read") && write.contains("invalidated by the responder"),
        "{write}"
    );
    assert!(line(&put, "CREATE").contains("call inline"), "{put}");
    let get = verbose(&["get", &server.url("/file"), place.path().to_str().unwrap()]);
    let read = line(&get, "READ");
    assert!(
        read.contains("1048576 B by Write chunk") && read.contains("invalidated by the responder"),
        "{read}"
    );
    let listing = line(&verbose(&["ls", &server.url("/names")]), "READDIRPLUS");
    assert!(listing.contains("B by Reply chunk"), "{listing}");
    assert!(line(&verbose(&["ping", "-c", "1", server.rdma()]), "NULL").contains("reply inline"));
    let tcp = format!("nfs://{}/file", server.tcp());
    assert!(line(&verbose(&["stat", "--proto", "tcp", &tcp]), "LOOKUP").contains("TCP"));
}

#[test]
fn signals_stop_the_server_in_order() {
    for name in ["INT", "TERM"] {
        let server = Server::start();
        succeed(&["ping", "-c", "1", server.rdma()]);
        let (status, complaint) = server.stop(name);
        assert!(status.success(), "{name}: {status} {complaint}");
        let stops = format!(" info rpcrdma::stop: stopping by SIG{name}: calls in progress are answered");
        let is_known = |line: &str| line.contains(" info rpcrdma::clients: ") || line.ends_with(&stops);
        assert!(complaint.lines().all(is_known) && complaint.contains(&stops), "{complaint}");
    }
}

#[test]
fn a_server_says_why_it_cannot_start() {
    let server = Server::start();
    let place = scratch();
    let state = place.path().join("state");
    let (directory, state) = (place.path().to_str().unwrap(), state.to_str().unwrap());
    let complaint =
        fail(1, &["serve", directory, "--listen", server.rdma(), "--state", "/dev/shm/rpcrdma-none/x/.."]);
    assert!(complaint.contains("cannot"), "{complaint}");
    let complaint = fail(1, &["serve", directory, "--state", state]);
    assert!(complaint.contains("inside the export"), "{complaint}");
    let export = place.path().join("export");
    fs::create_dir(&export).unwrap();
    let export = export.to_str().unwrap();
    let complaint = fail(1, &["serve", export, "--state", state, "--listen", server.rdma()]);
    assert!(complaint.contains("another server"), "{complaint}");
    let secure = format!("/={export},sec=krb5i");
    let complaint =
        fail(1, &["serve", "--export", &secure, "--state", state, "--keytab", "/nonexistent/keytab"]);
    assert!(
        complaint.contains("cannot serve exports with Kerberos") && complaint.contains("ktadd"),
        "{complaint}"
    );
    let complaint = fail(1, &["serve", "/nonexistent/dir", "--state", state]);
    assert!(complaint.contains("/nonexistent/dir"), "{complaint}");
}

#[test]
fn an_interrupted_get_leaves_nothing_unfinished() {
    // Small READs leave time for the interruption.
    let server = Server::start_with(&["--max-payload", "4K"]);
    fs::write(server.directory().join("small"), "done").unwrap();
    fs::write(server.directory().join("large"), vec![7; 256 << 20]).unwrap();
    let place = scratch();
    let out = place.path().join("out");
    let mut child = command(&["get", "-r", &server.url("/"), out.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let growing = || {
        fs::read_dir(&out).is_ok_and(|mut entries| {
            entries.any(|entry| entry.unwrap().metadata().is_ok_and(|file| file.len() > 1 << 20))
        })
    };
    until("nothing is fetched", growing);
    signal(child.id(), "INT");
    let status = wait(&mut child, Duration::from_secs(20));
    assert_eq!(status.code(), Some(130));
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "small"), "{left:?}");
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(complaint.contains("SIGINT"), "{complaint}");
}

#[test]
fn a_get_goes_on_after_a_restart_of_the_server() {
    let mut server = Server::start();
    let data: Vec<u8> = (0..u32::try_from(96 << 18).unwrap()).flat_map(u32::to_le_bytes).collect();
    for index in 0..3 {
        fs::write(server.directory().join(format!("f{index}")), &data).unwrap();
    }
    let place = scratch();
    let out = place.path().join("out");
    // Slow enough to be interrupted: one call at a time, one file at a time, and a server that stands still
    // at first.
    let mut child =
        command(&["get", "-r", "--files", "1", "--credits", "1", &server.url("/"), out.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let started = || {
        fs::read_dir(&out).is_ok_and(|mut entries| {
            entries.any(|entry| entry.unwrap().metadata().is_ok_and(|file| file.len() > 1 << 20))
        })
    };
    until("nothing is fetched", started);
    server.kill();
    server.restart();
    let status = wait(&mut child, Duration::from_secs(40));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(status.success(), "{status} {complaint}");
    for index in 0..3 {
        assert!(fs::read(out.join(format!("f{index}"))).unwrap() == data, "f{index}");
    }
}

#[test]
fn default_ports_are_avoided_if_taken() {
    // If the usual TCP port is in use, a second server finds another port.
    let place = scratch();
    let export = place.path().join("export");
    fs::create_dir(&export).unwrap();
    let _taken = TcpListener::bind("127.0.0.1:20048");
    let mut child = command(&["serve", "--listen", "127.0.0.1:0", "--state"])
        .args([place.path().join("state"), export])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    signal(child.id(), "TERM");
    assert!(wait(&mut child, Duration::from_secs(20)).success());
    assert!(line.starts_with("ready: ") && line.contains("and tcp 127.0.0.1:"), "{line}");
    assert!(!line.contains("127.0.0.1:20048"), "{line}");
    assert!(line.contains("no mount command"), "{line}");
}

/// RFC 5666 §6, §10: options of both ends configure connections.
#[test]
fn connections_are_configured_in_band_if_both_ends_are_told_to() {
    let with = Server::start_with(&["--insecure-conf-rdma"]);
    let without = Server::start();
    for (server, option, line) in [
        (&with, Some("--insecure-conf-rdma"), Some("agreed by CONF_RDMA agreement=inline Calls of 4096 B")),
        (&without, Some("--insecure-conf-rdma"), Some("nothing agreed by CONF_RDMA")),
        (&with, None, None),
    ] {
        let ping = ["-v", "ping", "-c", "1", server.rdma()];
        let output = run(&[&ping[..], option.as_slice()].concat());
        let events = text(&output.stderr);
        assert!(output.status.success(), "{events}");
        assert_eq!(events.contains("CONF_RDMA"), line.is_some(), "{events}");
        assert!(events.contains(line.unwrap_or_default()), "{events}");
    }
}

/// No option is ignored.
#[test]
fn options_about_what_is_not_used_are_refused() {
    for (arguments, said) in [
        (&["ping", "--profile", "p2", "host"][..], "--profile is about Version Two"),
        (&["ping", "--profile", "p2", "--rpcrdma-version", "1", "host"], "--profile is about Version Two"),
        (&["ping", "--continuation", "4", "host"], "--continuation is about Version Two"),
        (&["ping", "--placement", "8K", "host"], "--placement is about Version Two"),
        (&["ping", "--combine", "8", "host"], "--combine is about Version Two"),
        (
            &["ping", "--rpcrdma-version", "2", "--profile", "p3", "--combine", "8", "host"],
            "--combine has no meaning with --profile p3",
        ),
        (
            &["ping", "--rpcrdma-version", "2", "--profile", "p3", "--placement", "8K", "host"],
            "--placement has no meaning with --profile p3",
        ),
        (
            &["ping", "--rpcrdma-version", "2", "--continuation", "0", "--placement", "8K", "host"],
            "--placement has no meaning with --continuation 0",
        ),
        (&["ping", "--opttype-base", "1", "host"], "--opttype-base is about Version Two"),
        (
            &["ping", "--rpcrdma-version", "2", "--opttype-base", "1", "host"],
            "the operations on transmissions cannot begin with 1 in P1",
        ),
        (
            &["ping", "--rpcrdma-version", "2", "--profile", "p3", "--opttype-base", "5", "host"],
            "only P1 and P2 of Version Two have operations on transmissions",
        ),
        (
            &["ping", "--rpcrdma-version", "2", "--inline", "16K", "--placement", "8K", "host"],
            "--inline 16384 is longer than the Receives of --placement 8192, which hold 9216 bytes",
        ),
        (&["ping", "--placement", "5000", "host"], "5000 is not a multiple of 4096 from 4096 to 249856"),
        (&["ping", "--proto", "tcp", "--rpcrdma-version", "auto", "host"], "--rpcrdma-version is about RDMA"),
        (&["ping", "--proto", "tcp", "--insecure-conf-rdma", "host"], "--insecure-conf-rdma is about RDMA"),
        (
            &["ping", "--insecure-conf-rdma", "--rpcrdma-version", "2", "host"],
            "--insecure-conf-rdma is about Version One",
        ),
        (&["ping", "--proto", "tcp", "--conf-rdma", "host"], "--conf-rdma is about RDMA"),
        (
            &["ping", "--sec", "krb5", "--conf-rdma", "--rpcrdma-version", "2", "host"],
            "--conf-rdma is about Version One",
        ),
        (&["ping", "--conf-rdma", "host"], "--conf-rdma needs --sec krb5"),
        (&["ping", "--conf-rdma", "--insecure-conf-rdma", "host"], "cannot be used with"),
        (&["serve", "--rpcrdma-version", "2", "--conf-rdma", "."], "--conf-rdma is about Version One"),
        (&["serve", "--conf-rdma", "."], "--conf-rdma needs Kerberos"),
        (&["serve", "--rpcrdma-version", "1", "--profile", "p2", "."], "--profile is about Version Two"),
        (&["serve", "--keytab", "/x", "."], "--keytab is about Kerberos"),
        (&["serve", "--principals", "/x", "."], "--principals is about Kerberos"),
        (
            &["serve", "--rpcrdma-version", "2", "--insecure-conf-rdma", "."],
            "--insecure-conf-rdma is about Version One",
        ),
    ] {
        let complaint = fail(2, arguments);
        assert!(complaint.contains(said), "{arguments:?}: {complaint}");
    }
}

/// version-two-01 §5, xcharext-02 §4.1: a connection speaks the version that the options of both ends allow.
#[test]
fn the_version_spoken_is_the_one_asked_for_and_shown() {
    let servers = [
        (Server::start(), 2),
        (Server::start_with(&["--profile", "p2"]), 2),
        (Server::start_with(&["--rpcrdma-version", "1"]), 1),
        (Server::start_with(&["--profile", "p3"]), 2),
    ];
    for (index, (server, highest)) in servers.iter().enumerate() {
        let profile = ["p1", "p2", "p1", "p3"][index];
        let two = ["--profile", profile];
        for (asked, profile_option, expected) in [("1", &[][..], 1), ("auto", &two[..], *highest)] {
            let ping = ["-v", "ping", "-c", "2", "-i", "0", "--json", "--rpcrdma-version", asked];
            let output = run(&[&ping[..], profile_option, &[server.rdma()]].concat());
            let shown = text(&output.stderr);
            assert!(output.status.success(), "{shown}");
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let spoken = &document["rpcrdma"];
            assert_eq!(spoken["version"], expected, "{asked} {profile}: {spoken}");
            let expected_profile = if expected == 2 { profile.into() } else { serde_json::Value::Null };
            assert_eq!((&spoken["profile"], &spoken["send"]), (&expected_profile, &4096.into()));
            let told = shown.contains("the server announced its characteristics peer=Receives of 4096 B");
            assert_eq!(told, expected == 2, "{shown}");
        }
    }
    let (server, _) = &servers[2];
    let complaint = fail(1, &["ping", "-c", "1", "--rpcrdma-version", "2", server.rdma()]);
    assert!(complaint.contains("RPC-over-RDMA versions 1 to 1"), "{complaint}");
    for index in [1, 3] {
        let (server, _) = &servers[index];
        let ping = ["ping", "-c", "1", "--timeout", "3", "--rpcrdma-version", "2", server.rdma()];
        let complaint = fail(1, &ping);
        assert!(
            complaint.contains("refused Version Two") && complaint.contains("another profile"),
            "{complaint}"
        );
    }
}

/// The hint about root appears where root's loss of rights is the cause, and nowhere else.
#[test]
fn root_learns_that_it_is_nobody_only_where_it_is() {
    const HINT: &str = "root is nobody at this server";
    if !Command::new("id").arg("-u").output().is_ok_and(|output| text(&output.stdout).trim() == "0") {
        println!("skipped: not root");
        return;
    }
    let closed = scratch();
    fs::write(closed.path().join("file"), "text").unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let exports = [format!("/squashed={}", closed.path().display()), "/sys=/sys,squash=none".to_owned()];
    let server = Server::start_with(&["--export", &exports[0], "--export", &exports[1]]);
    let squashed = server.url("/squashed");
    assert!(fail(1, &["ls", &squashed]).contains(HINT));
    let target = closed.path().join("copy");
    let output = run(&["get", "-r", &squashed, target.to_str().unwrap()]);
    assert!(!output.status.success() && text(&output.stderr).contains(HINT), "{}", text(&output.stderr));
    // No caller enters other file systems below an export.
    let device = |path: &str| fs::metadata(path).ok().map(|found| found.dev());
    if device("/sys/fs/cgroup").is_none_or(|inner| Some(inner) == device("/sys")) {
        println!("skipped: /sys/fs/cgroup is no file system of its own");
        return;
    }
    let complaint = fail(1, &["stat", &server.url("/sys/fs/cgroup")]);
    assert!(complaint.contains("NFS3ERR_ACCES") && !complaint.contains(HINT), "{complaint}");
}
