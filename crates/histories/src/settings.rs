//! Drawn properties of a fabric and two endpoints.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_proto::{BufferStructure, Config, Limits, Profile, ReplyPlacement, Versions};
use rpcrdma_sim::{CompletionMode, FabricConfig};
use rpcrdma_verbs::{ConnectParameters, ProtectionDomain};

use crate::draw::Draw;
use crate::program::{MAX, Table};

/// Time after its deadline within which a call must end: a completed call waits for its invalidations, a connection
/// that ends for its last completions.
pub const SLACK: Duration = Duration::from_secs(60);

/// Memory of an endpoint, in bytes; histories withhold some of it.
pub(crate) const MEMORY: usize = 8 << 20;

/// Length of the largest Receive that a side changes to, by itself or by request, in bytes.
pub(crate) const MOST_RECEIVE: u32 = 16_384;

/// Length of the receive queue of an endpoint.
pub(crate) const RECEIVE_QUEUE: usize = 80;

/// Maximum number of decisions in one history.
pub(crate) const MOST_STEPS: usize = 400;
/// Maximum number of rounds without time passing, and of events in one wait, before an engine counts as running for
/// ever.
pub(crate) const MOST_ROUNDS: usize = 200_000;

pub(crate) fn fabric(draw: &mut Draw<'_>) -> FabricConfig {
    let mut config = FabricConfig {
        seed: u64::from(draw.byte()),
        completion_mode: draw.pick(&[CompletionMode::Local, CompletionMode::Acknowledged]),
        jitter: Duration::from_micros(draw.pick(&[0, 5, 50])),
        completion_jitter: Duration::from_micros(draw.pick(&[0, 7, 70])),
        bandwidth: draw.pick(&[None, Some(1_250_000_000), Some(50_000_000)]),
        segment_size: draw.pick(&[4096, 1408, 65_536]),
        ..FabricConfig::default()
    };
    config.capabilities.max_windows = draw.pick(&[4096, 40, 3]);
    config.capabilities.max_sge = draw.pick(&[64, 3]);
    config.capabilities.remote_invalidation = !draw.rarely(4);
    config
}

/// Returns the versions of two sides, from one byte: 0 is Version One for both.
pub(crate) fn versions(byte: u8) -> [Versions; 2] {
    let two = |profile| [Versions::both(profile), Versions::two(profile)];
    let [[first, second], [third, fourth]] = [Profile::P1, Profile::P2].map(two);
    let [fifth, sixth] = two(Profile::P3);
    let all = match byte {
        150..200 => [Versions::ONE, fifth, sixth, first, fourth],
        _ => [Versions::ONE, first, second, third, fourth],
    };
    let byte = usize::from(byte);
    [all[byte % 5], all[byte / 5 % 5]]
}

/// Returns an endpoint. `exchanges`: it exchanges characteristics, if it speaks a version that has them.
pub(crate) fn endpoint(draw: &mut Draw<'_>, versions: Versions, exchanges: bool) -> Config {
    let mut limits = Limits::default();
    limits.read_segment_len = 1 << 20;
    limits.read_total = 1 << 20;
    limits.segments_per_chunk = draw.pick(&[256, 16, 4]);
    let mut config = Config::default();
    config.send_size = draw.pick(&[4096, 1024, 16_384]);
    config.receive_size = draw.pick(&[4096, 1024, 16_384]);
    config.remote_invalidation = !draw.rarely(3);
    config.calls = draw.pick(&[8, 1, 32]);
    config.grant = draw.pick(&[8, 1, 32]);
    config.early_calls = draw.pick(&[1, 16]);
    config.limits = limits;
    config.reduce_from = draw.pick(&[None, Some(0), Some(600)]);
    config.max_segment_len = draw.pick(&[1 << 30, 1024, 20_000]);
    config.max_segments = draw.pick(&[16, 2, 300]);
    config.max_read_chunks = draw.pick(&[1, 4]);
    config.reverse_chunks = draw.flag();
    config.bindings = None;
    config.versions = versions;
    if draw.flag() {
        config.bindings = Some(Arc::new(Table));
    }
    // Long Receives have space for items.
    if config.receive_size == 16_384 {
        config.transmissions.structure = Some(BufferStructure::behind_head(4096, 3, 4096));
        // As much as possible of the forms that are otherwise avoided for their cost.
        config.transmissions.place_from = 1024;
        config.transmissions.spread_up_to = usize::MAX;
        config.transmissions.reply_sends = usize::MAX;
    }
    // The sides differ in their support.
    let transmissions = &mut config.transmissions;
    transmissions.asked = match config.max_segments {
        2 => ReplyPlacement::BySize(2000),
        300 => ReplyPlacement::Choice,
        _ => ReplyPlacement::Targets,
    };
    transmissions.calls.placement = config.reduce_from.is_none();
    transmissions.calls.continuation = config.early_calls > 1;
    transmissions.replies.placement = config.max_segment_len > 1024;
    transmissions.continued_replies = config.max_read_chunks == 1;
    // Endpoints with many calls combine some of them.
    if config.calls == 32 {
        config.combined_messages = 8;
        config.limits.combined_messages = 8;
    }
    config.characteristics.enabled = exchanges;
    config.characteristics.most_receive_size = usize::try_from(MOST_RECEIVE).unwrap();
    config.timeouts.idle = draw.pick(&[None, Some(Duration::from_secs(20))]);
    // Servers with many credits call before the first message of a client arrives.
    if config.grant == 32 {
        config.timeouts.first_message = Duration::from_micros(1);
    }
    config
}

/// Queue lengths of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    max_send_wr: usize,
    reads: u16,
}

impl Queues {
    pub(crate) fn draw(draw: &mut Draw<'_>) -> Self {
        Self { max_send_wr: draw.pick(&[128, 4, 20]), reads: draw.pick(&[16, 1]) }
    }

    pub(crate) fn parameters(self, config: &Config, domain: &ProtectionDomain) -> ConnectParameters {
        ConnectParameters {
            private_data: config.private_data().encode().into(),
            ird: self.reads,
            ord: self.reads,
            max_send_wr: self.max_send_wr,
            max_recv_wr: RECEIVE_QUEUE,
            domain: domain.clone(),
        }
    }
}

/// Returns a waiting time, from zero to minutes.
pub(crate) fn wait(draw: &mut Draw<'_>) -> Duration {
    match draw.below(4) {
        0 => Duration::from_micros(u64::from(draw.byte())),
        1 => Duration::from_millis(u64::from(draw.byte())),
        2 => Duration::from_millis(100 * u64::from(draw.byte())),
        _ => Duration::from_secs(u64::from(draw.byte())),
    }
}

const _: () = assert!(MAX * 4 < MEMORY, "a call fits the memory of an endpoint");
