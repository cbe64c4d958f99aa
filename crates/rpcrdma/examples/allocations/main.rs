//! Counts the heap allocations of a call in steady state, by side and by version of RPC-over-RDMA. It is a NULL call, or a
//! call whose arguments and results are a number, with types and by hand. Each side has a runtime of its own, and both have
//! turns in one thread. So every allocation belongs to the side whose turn it is. Allocations within the provider count apart.
//! The provider is the simulated fabric, and for Version One software iWARP on loopback too, as in production.
//! `cargo run --release -p rpcrdma --example allocations`

mod provider;

use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, ClientConfig, Effect, ProcedureInfo, Profile,
    Program, ResponseFuture, Server, ServerConfig, Versions,
};
use rpcrdma_iwarp::{Config as IwarpConfig, IwarpConnector, IwarpListener};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::{Decoder, encode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use crate::provider::{Counter, CountingConnector, CountingListener};

/// The program by hand.
const PROGRAM: u32 = 0x2000_0000;
/// Calls before the first that counts: until then queues and maps grow.
const WARM_UP: u64 = 300;
/// Calls that count.
const CALLS: u64 = 1000;
/// Polls of a side in one turn: enough for all that its tasks can do.
const POLLS_PER_TURN: usize = 8;

/// Allocations of one side in one call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    /// In the client or server, without its provider.
    own: f64,
    /// In its provider.
    provider: f64,
}

/// The client or the server, with its runtime.
struct Side {
    runtime: Runtime,
    /// Allocations in all turns.
    all: u64,
    /// Those of the provider.
    provider: Counter,
    /// Those of the runtime for its list of yielded tasks.
    list: Counter,
}

/// The program by hand: procedure 1 returns its number.
struct ByHand;

impl Program for ByHand {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        (procedure == 1).then_some(ProcedureInfo { name: "SAME", effect: Effect::Idempotent })
    }

    fn call(&self, _: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(async move { Ok(encode(&arguments.decode_all::<u32>()?)?) })
    }
}

impl Binding for ByHand {}

rpcrdma::program! {
    /// The program with types.
    mod with_types {
        program 0x2000_0001, version 1;
        /// Returns the number.
        fn same = 1, Same(u32) -> u32, Idempotent;
    }
}

struct WithTypes;

impl with_types::Service for WithTypes {
    async fn same(&self, _: &CallContext, number: u32) -> Result<u32, CallFailure> {
        Ok(number)
    }
}

/// The work of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Null,
    ByHand,
    WithTypes,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::ByHand => "by hand",
            Self::WithTypes => "types",
        }
    }

    async fn call(self, client: &Client) -> Result<(), CallError> {
        match self {
            Self::Null => client.null(PROGRAM, 1).await.map(drop),
            Self::ByHand => {
                let call = Call::new(PROGRAM, 1, 1).arguments(encode(&7u32)?).results(4);
                client.call_raw(call).await?.results.decode_all::<u32>().map(drop).map_err(Into::into)
            }
            Self::WithTypes => client.call::<with_types::Same>(7).await.map(drop),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<8} {:<8} {:<8} {:>8} {:>8} {:>17} {:>17}",
        "call", "version", "provider", "client", "server", "client's provider", "server's provider"
    );
    for (work, name, versions, provider) in subjects() {
        let [client, server] = measure(work, versions, provider)?;
        println!(
            "{:<8} {name:<8} {:<8} {:>8.2} {:>8.2} {:>17.2} {:>17.2}",
            work.name(),
            provider.name(),
            client.own,
            server.own,
            client.provider,
            server.provider
        );
    }
    Ok(())
}

/// The provider below both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    Sim,
    Iwarp,
}

/// The two ends of a provider, and the address of the far one.
type Ends = (Box<dyn Listener>, Arc<dyn Connector>, SocketAddr);

impl Provider {
    const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Iwarp => "iwarp",
        }
    }

    /// Listens in the runtime of the far side.
    fn ends(self, far: &Side) -> Result<Ends, Box<dyn Error>> {
        match self {
            Self::Sim => {
                // All posted work arrives before the turn of the other side.
                let config =
                    FabricConfig { latency: Duration::ZERO, bandwidth: None, ..FabricConfig::default() };
                let fabric = Fabric::on_tokio(config);
                let address = SocketAddr::from(([192, 0, 2, 1], 20_049));
                let host: IpAddr = [192, 0, 2, 2].into();
                Ok((Box::new(fabric.listen(address)?), Arc::new(fabric.connector(host)), address))
            }
            Self::Iwarp => {
                let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let listener = far.runtime.block_on(IwarpListener::bind(any, IwarpConfig::default()))?;
                let address = listener.local_address()?;
                Ok((Box::new(listener), Arc::new(IwarpConnector::new(IwarpConfig::default())), address))
            }
        }
    }
}

/// Returns all calls and all versions with their names, and the providers on which they are measured.
fn subjects() -> [(Work, &'static str, Versions, Provider); 7] {
    let two = Versions::two;
    [
        (Work::Null, "1", Versions::ONE, Provider::Sim),
        (Work::Null, "1", Versions::ONE, Provider::Iwarp),
        (Work::Null, "p1", two(Profile::P1), Provider::Sim),
        (Work::Null, "p2", two(Profile::P2), Provider::Sim),
        (Work::Null, "p3", two(Profile::P3), Provider::Sim),
        (Work::ByHand, "1", Versions::ONE, Provider::Sim),
        (Work::WithTypes, "1", Versions::ONE, Provider::Sim),
    ]
}

/// Returns the allocations of a call at the client and at the server.
fn measure(work: Work, versions: Versions, provider: Provider) -> Result<[Figure; 2], Box<dyn Error>> {
    let (mut near, mut far) = (Side::new()?, Side::new()?);
    let (listener, connector, address) = provider.ends(&far)?;
    let mut config = ServerConfig::default();
    config.protocol.versions = versions;
    let listener = CountingListener::new(listener, &far.provider);
    let builder = Server::builder().config(config).program(Arc::new(ByHand));
    let builder = builder.program(Arc::new(with_types::serve(WithTypes)));
    let server = {
        let _guard = far.runtime.enter();
        builder.listen_rdma(Box::new(listener)).build()?
    };
    let serving = far.runtime.spawn(server.serve(std::future::pending()));

    let connector = Arc::new(CountingConnector::new(connector, &near.provider));
    let mut config = ClientConfig::default();
    config.protocol.versions = versions;
    config.protocol.program = Some((PROGRAM, 1));
    let client = by_turns(&mut near, &mut far, Client::rdma(connector, address, config))?;
    let mut before = [(0, 0); 2];
    for call in 0..WARM_UP + CALLS {
        if call == WARM_UP {
            before = [near.counts(), far.counts()];
        }
        by_turns(&mut near, &mut far, work.call(&client))?;
    }
    let figures = [(&near, before[0]), (&far, before[1])].map(|(side, before)| side.since(before));
    by_turns(&mut near, &mut far, client.close());
    serving.abort();
    Ok(figures)
}

/// Lets both sides have turns until the client's work is done.
fn by_turns<T>(near: &mut Side, far: &mut Side, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = near.turn(work.as_mut()) {
            return done;
        }
        let nothing: Poll<()> = far.turn(pin!(std::future::pending()));
        debug_assert!(nothing.is_pending());
    }
}

impl Side {
    fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, all: 0, provider: Counter::default(), list: Counter::default() })
    }

    /// Lets this side's tasks run, and polls its work.
    fn turn<F: Future>(&mut self, mut work: Pin<&mut F>) -> Poll<F::Output> {
        let mut outcome = Poll::Pending;
        let info = allocation_counter::measure(|| {
            outcome = self.runtime.block_on(async {
                // The runtime makes this list anew in each `block_on`, of which a real process has one.
                poll_fn(|cx| {
                    let _ = self.list.count(|| pin!(yield_now()).poll(cx));
                    Poll::Ready(())
                })
                .await;
                for _ in 0..POLLS_PER_TURN {
                    let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
                    if polled.is_ready() {
                        return polled;
                    }
                    let mut yielded = false;
                    poll_fn(|cx| {
                        if std::mem::replace(&mut yielded, true) {
                            return Poll::Ready(());
                        }
                        // Unlike the runtime's own way to yield, this one allocates nothing.
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                }
                Poll::Pending
            });
        });
        self.all += info.count_total;
        outcome
    }

    /// Returns all allocations but the list of yielded tasks, and those of the provider.
    fn counts(&self) -> (u64, u64) {
        (self.all - self.list.get(), self.provider.get())
    }

    fn since(&self, (all, provider): (u64, u64)) -> Figure {
        let (all, provider) = (self.counts().0 - all, self.counts().1 - provider);
        let own = all - provider;
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let per_call = |count: u64| count as f64 / CALLS as f64;
        Figure { own: per_call(own), provider: per_call(provider) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most allocations of a NULL call: at the client, and at the server.
    const MOST: [f64; 2] = [4.0, 4.0];
    /// Most allocations of software iWARP for it, at each side: the memory of the message that arrives.
    const MOST_OF_IWARP: f64 = 2.0;

    #[test]
    fn a_null_call_allocates_no_more_than_it_did() {
        let nulls = subjects().into_iter().filter(|(work, ..)| *work == Work::Null);
        for (work, name, versions, provider) in nulls {
            for (figure, most) in measure(work, versions, provider).unwrap().into_iter().zip(MOST) {
                assert!(figure.own <= most, "version {name}: {figure:?}, at most {most}");
                assert!(
                    provider == Provider::Sim || figure.provider <= MOST_OF_IWARP,
                    "software iWARP: {figure:?}, at most {MOST_OF_IWARP}"
                );
            }
        }
    }

    #[test]
    fn a_call_with_types_allocates_no_more_than_one_by_hand() {
        let measure = |work| measure(work, Versions::ONE, Provider::Sim).unwrap();
        let by_hand = measure(Work::ByHand);
        for (figure, most) in measure(Work::WithTypes).into_iter().zip(by_hand) {
            assert!(figure.own <= most.own, "{figure:?}, at most {most:?}");
        }
    }
}
