//! Limits of `rpcrdma serve` on the resources of one client and of all clients together: from options to
//! [`ServerConfig`].
//!
//! The parser of each option checks its range. [`Bounds::config`] checks the combinations, and its errors
//! name the value given and the values allowed. Only defaults are adjusted silently.

use std::time::Duration;

use clap::Args;
use rpcrdma::{PeerShares, ServerConfig, Versions};
use rpcrdma_iwarp::Timeouts;
use rpcrdma_nfs::server::ServerOptions;

use crate::arguments::{Sends, inline_size, seconds, size, whole};
use crate::exit::Failure;

/// Default space in a Call beside payload, in bytes.
const CALL_ROOM: usize = 64 << 10;
/// Least space in a Call beside payload, in bytes: enough for the longest path.
const CALL_ROOM_LEAST: usize = 4 << 10;
/// Default of `--max-connections`, if as many fit.
const MOST_CONNECTIONS: usize = 8192;
/// Default of `--max-connections-per-peer`, as a part of `--max-connections`: numerator and denominator.
const PER_PEER: (usize, usize) = (5, 8);
/// Least credits of a connection by default.
const LEAST_CREDITS: u32 = 2;
/// Least `--memory`, in bytes.
const MEMORY_LEAST: usize = 16 << 20;

/// Least `--reply-cache`, in bytes.
const REPLY_CACHE_LEAST: usize = 2 << 20;
/// Least `--least-rate`, in bytes a second. At that rate the longest FPDU arrives in time.
const LEAST_RATE_LEAST: u64 = 4 << 10;
/// Greatest `--least-rate`, in bytes a second.
const LEAST_RATE_MOST: u64 = 16 << 20;
/// Least `--io-threads`.
const IO_THREADS_LEAST: u32 = 8;
const _: () = assert!(ServerOptions::IO_THREADS_LEAST == 8);

const CONNECTIONS: &str = "Limits of connections";
const CALLS: &str = "Limits of calls";
const MEMORY: &str = "Limits of memory";

/// Limits of `rpcrdma serve`.
#[derive(Debug, Args)]
pub(super) struct Bounds {
    /// Connections at a time, RDMA and TCP together, 1 to 32768. Receives for the --least-credits of all
    /// must fit in a quarter of --memory [default: as many as fit there, and in half of the file descriptors, at most 8192]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 32_768), help_heading = CONNECTIONS)]
    max_connections: Option<u32>,
    /// Connections at a time from a client address or IPv6 /64 network, up to --max-connections
    /// [default: five eighths of --max-connections, 5120 with its default]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 32_768), help_heading = CONNECTIONS)]
    max_connections_per_peer: Option<u32>,
    /// RDMA connections in set-up at a time, at most --max-connections. A client address or IPv6 /64 network
    /// can have half of them [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 32_768), help_heading = CONNECTIONS)]
    max_half_open: Option<u32>,
    /// Drop RDMA connections, and TCP connections that ask for TLS, if they are not set up within this time, in
    /// seconds, at least 1
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = whole_second, help_heading = CONNECTIONS)]
    set_up: Duration,
    /// Close RDMA connections without a call for this long, in seconds, at least 1
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = whole_second, help_heading = CONNECTIONS)]
    idle: Duration,
    /// Close TCP connections without a call for this long, in seconds, at least 1
    #[arg(long, value_name = "SECONDS", default_value = "360", value_parser = whole_second, help_heading = CONNECTIONS)]
    tcp_idle: Duration,
    /// End connections whose client accepts no data for this long, in seconds, at least 1. Over TCP also
    /// those whose client begins a call and does not go on [default: 60 for RDMA, 30 for TCP]
    #[arg(long, value_name = "SECONDS", value_parser = whole_second, help_heading = CONNECTIONS)]
    stall: Option<Duration>,
    /// End connections whose data moves more slowly than this on average, in bytes a second, 4K to 16M.
    /// Slower data counts as stalled and has the time of --stall, or 30 seconds if it comes from an RDMA
    /// client
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = least_rate, help_heading = CONNECTIONS)]
    least_rate: u64,
    /// Calls in flight on each connection, 1 to 1024
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole::<u32>(1, 1024),
        help_heading = CALLS)]
    credits: u32,
    /// Calls in flight that each RDMA connection may have however many connections there are, 2 to --credits.
    /// A connection gets all --credits while its address holds less than half of its part, later ones get
    /// fewer [default: 2]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(2, 1024), help_heading = CALLS)]
    least_credits: Option<u32>,
    /// Longest inline message, sent or received, in bytes: a multiple of 1024 from 1024 to 262144
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = inline_size, help_heading = CALLS)]
    inline: u32,
    #[command(flatten)]
    sends: Sends,
    /// Largest payload of READ and WRITE, in bytes, from 4K to 1M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = max_payload, help_heading = CALLS)]
    max_payload: u32,
    /// Most bytes that the server fetches by RDMA Read, or receives over TCP, for one call.
    /// From --max-payload + 4K to a quarter of --memory [default: --max-payload + 64K]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = CALLS)]
    max_arguments: Option<usize>,
    /// Read chunks in one call, 2 to 256 (RFC 8267 §6.4.2 requires 2)
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = whole::<u32>(2, 256),
        help_heading = CALLS)]
    max_read_chunks: u32,
    /// Write chunks in one call, 1 to 256 (RFC 8267 §6.4.2 requires 1)
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = whole::<u32>(1, 256),
        help_heading = CALLS)]
    max_write_chunks: u32,
    /// Segments in one chunk, 16 to 4096 (RFC 8267 §6.4.2 requires 16)
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = whole::<u32>(16, 4096),
        help_heading = CALLS)]
    max_segments: u32,
    /// Threads of each export, 8 to 1024. A quarter each is for looking at objects, READ, changes of names
    /// and attributes, and WRITE with COMMIT. Of each part, a client address or IPv6 /64 network can hold
    /// three quarters. While it looks at objects in memory, it holds at most one thread for two processors
    /// [default: 8 for each processor, from 32 to 128]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(IO_THREADS_LEAST, 1024),
        help_heading = CALLS)]
    io_threads: Option<u32>,
    /// At shutdown, wait at most this long for the file systems to bring all data to stable storage, in
    /// seconds, at least 1
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = whole_second, help_heading = CALLS)]
    flush_wait: Duration,
    /// Memory for messages and payloads of all connections together, in bytes, at least 16M
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = memory, help_heading = MEMORY)]
    memory: usize,
    /// Part of --memory that one client address or IPv6 /64 network can hold, in bytes. One connection can
    /// always have what it needs [default: a quarter of --memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = MEMORY)]
    memory_per_peer: Option<usize>,
    /// Memory for replies that clients may request again after the loss of a connection, in bytes,
    /// beside --memory, at least 2M. Half of it is for WRITE, and half for all other calls that change
    /// something. Each reply takes its length and 1024 bytes
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = reply_cache, help_heading = MEMORY)]
    reply_cache: usize,
}

fn max_payload(text: &str) -> Result<u32, String> {
    match size(text)? {
        bytes @ 4096..=1_048_576 => u32::try_from(bytes).map_err(|error| error.to_string()),
        bytes => Err(format!("{bytes} is not from 4096 to 1048576")),
    }
}

fn memory(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        bytes @ MEMORY_LEAST.. => Ok(bytes),
        bytes => Err(format!("{bytes} is less than {MEMORY_LEAST} (16M)")),
    }
}

fn reply_cache(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        bytes @ REPLY_CACHE_LEAST.. => Ok(bytes),
        bytes => Err(format!("{bytes} is less than {REPLY_CACHE_LEAST} (2M)")),
    }
}

fn whole_second(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    if time < Duration::from_secs(1) { Err(format!("{text} is less than 1 second")) } else { Ok(time) }
}

fn least_rate(text: &str) -> Result<u64, String> {
    let rate = size(text)?;
    match rate {
        LEAST_RATE_LEAST..=LEAST_RATE_MOST => Ok(rate),
        _ => Err(format!("{rate} is not from {LEAST_RATE_LEAST} (4K) to {LEAST_RATE_MOST} (16M)")),
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    usize::try_from(size(text)?).map_err(|error| error.to_string())
}

fn number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the value of an option, or as much of its default as `most` allows. A value beyond `most` is an
/// error; `because` gives the reason for `most`.
fn up_to(
    option: &str,
    asked: Option<u32>,
    default: usize,
    most: usize,
    because: &str,
) -> Result<usize, Failure> {
    match asked.map(number) {
        Some(asked) if asked > most => {
            Err(Failure::usage(format!("{option} {asked}: at most {most} are possible, {because}")))
        }
        Some(asked) => Ok(asked),
        None => Ok(default.min(most)),
    }
}

impl Bounds {
    /// Returns the settings of a server that speaks these versions and can have so many descriptors for connections, and
    /// the memory for them.
    pub(super) fn config(
        &self,
        versions: Versions,
        descriptors: usize,
    ) -> Result<(ServerConfig, PeerShares), Failure> {
        let mut config = ServerConfig::default();
        config.memory = self.memory;
        config.memory_per_peer = self.memory_per_peer;
        config.set_up = self.set_up;
        config.tcp_idle = self.tcp_idle;
        config.max_calls = number(self.credits);
        config.reply_cache.memory = self.reply_cache;
        config.stall = self.stall.unwrap_or(config.stall);
        let protocol = &mut config.protocol;
        protocol.versions = self.sends.check(versions, self.inline)?;
        protocol.send_size = number(self.inline);
        protocol.receive_size = number(self.inline);
        protocol.grant = self.credits;
        protocol.timeouts.idle = Some(self.idle);
        protocol.timeouts.send = self.stall.unwrap_or(protocol.timeouts.send);
        protocol.timeouts.least_rate = self.least_rate;
        protocol.limits.read_chunks = number(self.max_read_chunks);
        protocol.limits.write_chunks = number(self.max_write_chunks);
        protocol.limits.segments_per_chunk = number(self.max_segments);
        let arguments = self.arguments()?;
        protocol.limits.read_total = arguments as u64;
        protocol.limits.read_segment_len = arguments as u64;
        self.sends.apply(protocol);
        config.max_record = arguments;
        // NFSv3 never calls its clients.
        config.max_reverse_calls = 0;
        config.least_credits = Some(self.least_credits()?);
        if let Some(share) = self.memory_per_peer.filter(|share| *share > self.memory) {
            return Err(Failure::usage(format!(
                "--memory-per-peer {share}: at most {} are possible, which is --memory",
                self.memory
            )));
        }
        let receives = config.least_receives().max(1);
        let fit = self.memory / 4 / receives;
        if fit == 0 {
            return Err(Failure::usage(format!(
                "--memory {}: the Receives of one connection take {receives} bytes (--least-credits {} of --inline {} \
                 and a few), and a quarter is for those of all connections",
                self.memory,
                self.least_credits()?,
                self.inline
            )));
        }
        config.max_connections = up_to(
            "--max-connections",
            self.max_connections,
            MOST_CONNECTIONS.min(descriptors).max(1),
            fit,
            &format!(
                "whose Receives (--least-credits of --inline and a few, {receives} bytes) fit in a quarter of --memory"
            ),
        )?;
        let (part, whole) = PER_PEER;
        config.max_connections_per_peer = up_to(
            "--max-connections-per-peer",
            self.max_connections_per_peer,
            (config.max_connections * part / whole).max(1),
            config.max_connections,
            "which is --max-connections",
        )?;
        config.max_half_open = up_to(
            "--max-half-open",
            self.max_half_open,
            config.max_half_open,
            config.max_connections,
            "which is --max-connections",
        )?;
        // They set memory aside for the Receives of all connections.
        let shares = config.shares();
        Ok((config, shares))
    }

    /// Returns the credits that each connection has in any case.
    fn least_credits(&self) -> Result<u32, Failure> {
        match self.least_credits {
            Some(asked) if asked > self.credits => Err(Failure::usage(format!(
                "--least-credits {asked}: at most {} are possible, which is --credits",
                self.credits
            ))),
            Some(asked) => Ok(asked),
            None => Ok(LEAST_CREDITS.min(self.credits)),
        }
    }

    /// Returns the settings of an NFS server that allocates from these shares.
    pub(super) fn server(&self, shares: &PeerShares) -> ServerOptions {
        let default = ServerOptions::default();
        ServerOptions {
            max_payload: self.max_payload,
            io_threads: self.io_threads.map_or(default.io_threads, number),
            flush_wait: self.flush_wait,
            shares: shares.clone(),
            ..default
        }
    }

    /// Returns the limit of the bytes that one Call makes the server receive.
    fn arguments(&self) -> Result<usize, Failure> {
        let payload = number(self.max_payload);
        let (least, most) = (payload + CALL_ROOM_LEAST, self.memory / 4);
        match self.max_arguments {
            Some(asked) if !(least..=most).contains(&asked) => Err(Failure::usage(format!(
                "--max-arguments {asked}: from {least} (--max-payload and 4K) to {most} (a quarter of --memory) is possible"
            ))),
            Some(asked) => Ok(asked),
            None => Ok(payload + CALL_ROOM),
        }
    }

    /// Returns the timers of the iWARP provider.
    pub(super) fn timeouts(&self) -> Timeouts {
        let default = Timeouts::default();
        let stalled_send = self.stall.unwrap_or(default.stalled_send);
        Timeouts { startup: self.set_up, stalled_send, least_rate: self.least_rate, ..default }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use rpcrdma::experimental::Profile;

    use super::*;

    const BOTH: Versions = Versions::both(Profile::P1);

    #[derive(Debug, Parser)]
    struct Options {
        #[command(flatten)]
        bounds: Bounds,
    }

    fn parse(line: &str) -> Bounds {
        Options::try_parse_from(std::iter::once("serve").chain(line.split_whitespace())).unwrap().bounds
    }

    fn refusal(line: &str) -> String {
        parse(line).config(BOTH, usize::MAX).unwrap_err().to_string()
    }

    #[test]
    fn without_options_the_defaults_of_the_library_hold() {
        let (config, shares) = parse("").config(BOTH, usize::MAX).unwrap();
        let default = ServerConfig::default();
        assert_eq!(
            (config.max_connections, config.max_connections_per_peer, config.max_half_open),
            (8192, 5120, default.max_half_open)
        );
        assert_eq!(
            (config.set_up, config.tcp_idle, config.stall),
            (default.set_up, default.tcp_idle, default.stall)
        );
        let (limits, default_limits) = (&config.protocol.limits, &default.protocol.limits);
        assert_eq!(format!("{limits:?}"), format!("{default_limits:?}"));
        assert_eq!((config.max_record, config.memory), (default.max_record, default.memory));
        assert_eq!(config.reply_cache, default.reply_cache);
        let (timeouts, default_timeouts) = (&config.protocol.timeouts, &default.protocol.timeouts);
        assert_eq!(timeouts.idle, Some(ServerConfig::RDMA_IDLE));
        assert_eq!(
            (timeouts.send, timeouts.least_rate),
            (default_timeouts.send, default_timeouts.least_rate)
        );
        // The rest of an address's part is for its further credits.
        assert_eq!(shares.limit(), default.shares().limit() / 4 * 3);
        // A quarter of the memory is for the Receives of the least credits, and a quarter for further ones.
        assert_eq!(config.least_receives() * MOST_CONNECTIONS, config.memory / 4);
        assert_eq!(parse("").timeouts(), Timeouts::default());
    }

    #[test]
    fn each_option_has_its_effect() {
        let bounds = parse(
            "--max-connections 100 --max-connections-per-peer 20 --max-half-open 10 --set-up 2 --idle 3 --tcp-idle 4 --stall 5 --least-rate 1M \
             --credits 8 --least-credits 3 --inline 1024 --max-payload 64K --max-arguments 80K --max-read-chunks 2 --max-write-chunks 1 \
             --max-segments 16 --memory 32M --memory-per-peer 4M --reply-cache 2M",
        );
        let (config, shares) = bounds.config(BOTH, usize::MAX).unwrap();
        assert_eq!(
            (config.max_connections, config.max_connections_per_peer, config.max_half_open),
            (100, 20, 10)
        );
        let second = Duration::from_secs(1);
        assert_eq!((config.set_up, config.tcp_idle, config.stall), (2 * second, 4 * second, 5 * second));
        let timeouts = &config.protocol.timeouts;
        assert_eq!(timeouts.idle, Some(3 * second));
        assert_eq!((timeouts.send, timeouts.least_rate), (5 * second, 1 << 20));
        assert_eq!((bounds.timeouts().startup, bounds.timeouts().stalled_send), (2 * second, 5 * second));
        assert_eq!(bounds.timeouts().least_rate, 1 << 20);
        assert_eq!((config.protocol.grant, config.max_calls, config.least_credits), (8, 8, Some(3)));
        assert_eq!((config.protocol.send_size, config.protocol.receive_size), (1024, 1024));
        let limits = &config.protocol.limits;
        assert_eq!((limits.read_chunks, limits.write_chunks, limits.segments_per_chunk), (2, 1, 16));
        assert_eq!(
            (limits.read_total, limits.read_segment_len, config.max_record),
            (80 << 10, 80 << 10, 80 << 10)
        );
        assert_eq!((config.memory, shares.limit()), (32 << 20, 3 << 20));
        assert_eq!(config.reply_cache.memory, 2 << 20);
    }

    #[test]
    fn fewer_connections_where_memory_is_small() {
        let (config, _) = parse("--memory 16M").config(BOTH, usize::MAX).unwrap();
        assert_eq!(
            (config.max_connections, config.max_connections_per_peer, config.max_half_open),
            (256, 160, 64)
        );
        let (config, _) =
            parse("--memory 16M --credits 1024 --inline 256K").config(BOTH, usize::MAX).unwrap();
        assert_eq!((config.max_connections, config.max_connections_per_peer), (4, 2));
        let (config, _) =
            parse("--memory 16M --least-credits 1000 --credits 1024").config(BOTH, usize::MAX).unwrap();
        assert_eq!((config.max_connections, config.max_connections_per_peer), (1, 1));
        assert_eq!(parse("--credits 1").config(BOTH, usize::MAX).unwrap().0.least_credits, Some(1));
        let (config, _) = parse("").config(BOTH, 4096).unwrap();
        assert_eq!((config.max_connections, config.max_connections_per_peer), (4096, 2560));
        assert_eq!(parse("").config(BOTH, 0).unwrap().0.max_connections, 1);
        // A side that speaks Version Two posts Receives of at least 4096 bytes, whatever size is announced.
        let small = parse("--memory 16M --inline 1024");
        assert_eq!(small.config(BOTH, usize::MAX).unwrap().0.max_connections, 256);
        assert_eq!(small.config(Versions::ONE, usize::MAX).unwrap().0.max_connections, 1024);
        // A single address can be given all connections.
        let all = "--max-connections 40 --max-connections-per-peer 40 --memory-per-peer 512M";
        assert_eq!(parse(all).config(BOTH, usize::MAX).unwrap().0.max_connections_per_peer, 40);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (line, said) in [
            ("--max-connections 8193", "--max-connections 8193: at most 8192 are possible"),
            ("--max-connections 8193", "16384 bytes) fit in a quarter of --memory"),
            ("--max-connections-per-peer 8193", "at most 8192 are possible, which is --max-connections"),
            (
                "--max-connections 10 --max-connections-per-peer 11",
                "at most 10 are possible, which is --max-connections",
            ),
            (
                "--memory 16M --least-credits 1024 --credits 1024",
                "--memory 16777216: the Receives of one connection take 4202496 bytes (--least-credits 1024",
            ),
            (
                "--credits 8 --least-credits 9",
                "--least-credits 9: at most 8 are possible, which is --credits",
            ),
            ("--max-connections 10 --max-half-open 11", "--max-half-open 11: at most 10 are possible"),
            (
                "--max-arguments 1M",
                "--max-arguments 1048576: from 1052672 (--max-payload and 4K) to 134217728",
            ),
            ("--memory 16M --max-arguments 5M", "to 4194304 (a quarter of --memory)"),
            (
                "--memory 16M --memory-per-peer 17M",
                "--memory-per-peer 17825792: at most 16777216 are possible, which is --memory",
            ),
        ] {
            let refusal = refusal(line);
            assert!(refusal.contains(said), "{line}: {refusal}");
        }
    }
}
