//! Measures protection of messages of 1 MiB, checksums and encryption: the library's and the crate's. HMAC and AES of `openssl
//! speed` stand beside, if that is installed.
//! `cargo run --release -p rpcrdma-gssapi --example protection -- [SECONDS]`
//!
//! The realm of each encryption type is one of its own, which ends with the run.

use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{Acceptor, Initiator, MechanismError, SecurityContext};
use rpcrdma_realm::Realm;

const MIB: usize = 1 << 20;
/// Set for the process that measures in a realm.
const INNER: &str = "RPCRDMA_EXAMPLE_REALM";
/// Encryption types, with the hash of their checksums and their cipher.
const TYPES: [(&str, &str, &str); 4] = [
    ("aes128-cts-hmac-sha1-96", "sha1", "aes-128-cbc"),
    ("aes256-cts-hmac-sha1-96", "sha1", "aes-256-cbc"),
    ("aes128-cts-hmac-sha256-128", "sha256", "aes-128-cbc"),
    ("aes256-cts-hmac-sha384-192", "sha384", "aes-256-cbc"),
];
/// Most threads that share a context.
const THREADS: usize = 2;

type Run<'a> = dyn Fn() -> Result<(), MechanismError> + Sync + 'a;
type AnyResult<T> = Result<T, Box<dyn Error>>;

fn main() -> AnyResult<()> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(2), |word| word.parse())?;
    if let Some(place) = std::env::var_os(INNER) {
        return measure(Path::new(&place), Duration::from_secs(seconds));
    }
    println!("MB in a second of processor time (in a second), with 1 to {THREADS} threads on one context");
    for (encryption, hash, cipher) in TYPES {
        let place = tempfile::tempdir()?;
        let path = |name: &str| place.path().join(name);
        let realm = Realm::start_of_type(place.path(), Ipv4Addr::LOCALHOST, encryption)?;
        realm.add_service("nfs/server.test", &path("server.keytab"))?;
        realm.add_user("alice", "secret")?;
        realm.kinit("alice", "secret", &path("tickets"))?;
        println!("{encryption}");
        let mut inner = Command::new(std::env::current_exe()?);
        inner.arg(seconds.to_string()).env(INNER, place.path());
        Realm::surround(&mut inner, place.path());
        if !inner.status()?.success() {
            return Err("the process in the realm failed".into());
        }
        for words in [&["-hmac", hash][..], &["-evp", cipher], &["-decrypt", "-evp", cipher]] {
            let shown =
                openssl(words, seconds).map_or("not measured".to_owned(), |rate| format!("{rate:.0}"));
            println!("  {:<38} {shown}", format!("openssl speed {}", words.join(" ")));
        }
    }
    Ok(())
}

/// Runs `openssl speed` in one process, which counts its processor time. `None` if that fails.
fn openssl(words: &[&str], seconds: u64) -> Option<f64> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-mr"]).args(words).arg("-bytes").arg(MIB.to_string());
    command.arg("-seconds").arg(seconds.to_string());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line begins with +F, and ends with bytes in a second.
    let rate: f64 = text.lines().rfind(|line| line.starts_with("+F"))?.rsplit(':').next()?.parse().ok()?;
    Some(rate / 1e6)
}

/// Creates both sides of a context.
fn sides(place: &Path, by_library: bool) -> AnyResult<[Arc<dyn SecurityContext>; 2]> {
    let mut acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab")))?;
    let mut initiator = KerberosInitiator::open(None, None)?;
    if by_library {
        (acceptor, initiator) = (acceptor.with_library_protection(), initiator.with_library_protection());
    }
    let (mut initiating, mut accepting) = (initiator.begin("nfs@server.test")?, acceptor.begin());
    let request = initiating.step(None)?;
    let answer = accepting.step(&request.token)?;
    let created = initiating.step(Some(&answer.token))?.created.ok_or("the context needs more tokens")?;
    Ok([created.context, answer.created.ok_or("the context needs more tokens")?.context])
}

fn measure(place: &Path, time: Duration) -> AnyResult<()> {
    let data = vec![7; MIB];
    let message: [&[u8]; 2] = [&[0, 0, 0, 1], &data];
    for (by_library, name) in [(true, "library"), (false, "own")] {
        let [initiator, acceptor] = sides(place, by_library)?;
        row(&format!("{name}: make a checksum"), time, &|| initiator.mic(&message).map(drop))?;
        let mic = initiator.mic(&message)?;
        row(&format!("{name}: verify a checksum"), time, &|| acceptor.verify(&message, &mic))?;
        row(&format!("{name}: wrap"), time, &|| initiator.wrap(&message).map(drop))?;
        let wrapped = initiator.wrap(&message)?;
        row(&format!("{name}: unwrap"), time, &|| acceptor.unwrap(&wrapped).map(drop))?;
    }
    Ok(())
}

/// Measures with each number of threads.
fn row(what: &str, time: Duration, run: &Run<'_>) -> AnyResult<()> {
    let mut shown = Vec::new();
    for threads in 1..=THREADS {
        let (processor, clock) = rates(threads, time, run)?;
        shown.push(format!("{processor:.0} ({clock:.0})"));
    }
    println!("  {what:<38} {}", shown.join("  "));
    Ok(())
}

/// Returns the processor time that the process has used, in seconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns how many MB of messages threads get through: in a second of processor time, and in a second.
fn rates(threads: usize, time: Duration, run: &Run<'_>) -> Result<(f64, f64), MechanismError> {
    let (started, used) = (Instant::now(), processor_time());
    let until = || {
        let mut count = 0_u32;
        while started.elapsed() < time {
            run()?;
            count += 1;
        }
        Ok(count)
    };
    let count: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(until)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum::<Result<_, _>>()
    })?;
    let megabytes = f64::from(count) * MIB as f64 / 1e6;
    Ok((megabytes / (processor_time() - used), megabytes / started.elapsed().as_secs_f64()))
}
