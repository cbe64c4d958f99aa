//! Programs that panic, overseers that shed calls, and interceptors.

use std::future::{poll_fn, ready};
use std::sync::atomic::AtomicU32;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Where the program panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Panics {
    Never,
    WhenAskedForFlavors,
    WhenAskedForTheProcedure,
    WhenAskedForProtection,
    WhenCalled,
    WhenPolled,
    WhenPolledAgain,
    WhenDropped,
}

const EVERYWHERE: [Panics; 7] = [
    Panics::WhenAskedForFlavors,
    Panics::WhenAskedForTheProcedure,
    Panics::WhenAskedForProtection,
    Panics::WhenCalled,
    Panics::WhenPolled,
    Panics::WhenPolledAgain,
    Panics::WhenDropped,
];

/// A program whose calls are pending once, and then return nothing.
struct Faulty {
    panics: Panics,
    called: Arc<AtomicU32>,
}

/// A response that panics when it is dropped.
struct Response(Panics);

impl Drop for Response {
    fn drop(&mut self) {
        self.0.at(Panics::WhenDropped);
    }
}

impl Panics {
    fn at(self, here: Self) {
        assert_ne!(self, here, "as asked");
    }
}

impl Program for Faulty {
    fn number(&self) -> u32 {
        NUMBER
    }

    fn versions(&self) -> RangeInclusive<u32> {
        3..=3
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        self.panics.at(Panics::WhenAskedForTheProcedure);
        let effect = if procedure == ECHO { Effect::Idempotent } else { Effect::State };
        Some(ProcedureInfo { name: "FAULTY", effect })
    }

    fn accepts_flavor(&self, _: u32) -> bool {
        self.panics.at(Panics::WhenAskedForFlavors);
        true
    }

    fn requires_integrity(&self, _: u32, _: u32) -> bool {
        self.panics.at(Panics::WhenAskedForProtection);
        false
    }

    fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
        self.called.fetch_add(1, Ordering::Relaxed);
        self.panics.at(Panics::WhenCalled);
        let (mut polls, response) = (0, Response(self.panics));
        Box::pin(poll_fn(move |_| {
            polls += 1;
            response.0.at(if polls == 1 { Panics::WhenPolled } else { Panics::WhenPolledAgain });
            if polls == 1 { Poll::Pending } else { Poll::Ready(Ok(Stream::new())) }
        }))
    }
}

/// Lets so many calls begin at a time, and notes what it is told.
struct Watch {
    places: AtomicU32,
    begun: AtomicU32,
    panics: Mutex<Vec<(ServedCall, String)>>,
}

impl Overseer for Watch {
    fn begin(&self, call: &ServedCall) -> bool {
        assert_eq!((call.xid, call.program, call.version, call.name), (77, NUMBER, 3, "FAULTY"));
        let place =
            self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |places| places.checked_sub(1));
        self.begun.fetch_add(u32::from(place.is_ok()), Ordering::Relaxed);
        place.is_ok()
    }

    fn end(&self, _: &ServedCall) {
        self.places.fetch_add(1, Ordering::Relaxed);
    }

    fn panicked(&self, call: &ServedCall, message: &str) {
        self.panics.lock().unwrap().push((call.clone(), message.to_owned()));
    }
}

struct World {
    dispatcher: Dispatcher,
    called: Arc<AtomicU32>,
    watch: Arc<Watch>,
}

impl World {
    fn new(panics: Panics, places: u32) -> Self {
        let called = Arc::default();
        let watch = Arc::new(Watch {
            places: AtomicU32::new(places),
            begun: AtomicU32::new(0),
            panics: Mutex::default(),
        });
        let mut dispatcher = Dispatcher::new(Arc::default());
        dispatcher.register(Arc::new(Faulty { panics, called: Arc::clone(&called) })).unwrap();
        dispatcher.oversee(Arc::clone(&watch) as _);
        Self { dispatcher, called, watch }
    }

    fn start(&self, procedure: u32) -> DispatchFuture {
        self.dispatcher.dispatch(peer(1), message(&header(procedure), Stream::new()), Instant::now())
    }

    fn places(&self) -> u32 {
        self.watch.places.load(Ordering::Relaxed)
    }

    fn called(&self) -> u32 {
        self.called.load(Ordering::Relaxed)
    }
}

/// Polls to the end; a call is pending once at most.
fn finish(future: &mut DispatchFuture) -> (ReplyHeader, Bytes) {
    let first = poll(future);
    let Poll::Ready(outcome) = (if first.is_ready() { first } else { poll(future) }) else {
        panic!("pending")
    };
    reply_of(outcome)
}

fn system_error() -> (ReplyHeader, Bytes) {
    accepted(AcceptStat::SystemError)
}

#[test]
fn i6_a_program_that_panics_has_failed() {
    for panics in EVERYWHERE {
        for procedure in [ECHO, APPEND] {
            let world = World::new(panics, 1);
            assert_eq!(finish(&mut world.start(procedure)), system_error(), "{panics:?}");
            let told = std::mem::take(&mut *world.watch.panics.lock().unwrap());
            assert_eq!((told.len(), world.places()), (1, 1), "{panics:?}");
            let (call, message) = &told[0];
            assert!(message.contains("as asked"), "{message}");
            assert_eq!((call.xid, call.procedure, call.peer), (77, procedure, peer(1).address));
        }
        let world = World::new(panics, 1);
        assert_eq!(
            finish(&mut world.start(0)),
            accepted(AcceptStat::Success),
            "procedure 0 needs no program"
        );
    }
}

/// A part of the change may be made. A program that only was asked has done nothing.
#[test]
fn i8_a_call_whose_program_panicked_is_not_executed_again() {
    for (panics, kept) in EVERYWHERE.map(|panics| (panics, panics >= Panics::WhenCalled)) {
        let world = World::new(panics, 1);
        let mut first = world.start(APPEND);
        assert_eq!(finish(&mut first), system_error());
        assert_eq!((first.key().is_some(), world.dispatcher.cache().len()), (kept, usize::from(kept)));
        assert_eq!(finish(&mut world.start(APPEND)), system_error());
        assert_eq!(world.called(), u32::from(kept), "{panics:?}");
    }
}

#[test]
fn i8_a_call_that_may_not_begin_leaves_nothing() {
    let world = World::new(Panics::Never, 1);
    let mut running = world.start(ECHO);
    for procedure in [ECHO, APPEND] {
        let mut shed = world.start(procedure);
        assert_eq!(finish(&mut shed), system_error());
        assert_eq!(shed.key(), None);
    }
    assert_eq!(finish(&mut world.start(0)), accepted(AcceptStat::Success), "procedure 0 always may");
    let counters = world.dispatcher.cache().counters();
    assert_eq!((counters.executed, counters.abandoned, world.dispatcher.cache().len()), (0, 0, 0));
    assert_eq!((world.called(), world.places()), (1, 0));
    finish(&mut running);
    assert_eq!(world.places(), 1, "also before the future is dropped");
    let mut now = world.start(APPEND);
    assert_eq!(finish(&mut now), accepted(AcceptStat::Success));
    assert!(now.key().is_some());
    // Its repeats begin nothing.
    world.watch.places.store(0, Ordering::Relaxed);
    assert_eq!(finish(&mut world.start(APPEND)), accepted(AcceptStat::Success));
    assert_eq!((world.called(), world.dispatcher.cache().counters().replayed), (2, 1));
}

#[test]
fn i6_a_call_dropped_half_way_gives_its_place_back() {
    let world = World::new(Panics::Never, 2);
    let (mut running, mut repeat) = (world.start(APPEND), world.start(APPEND));
    assert!(poll(&mut running).is_pending() && poll(&mut repeat).is_pending());
    assert_eq!(world.places(), 1, "a repeat takes none");
    drop(running);
    assert_eq!((world.places(), poll(&mut repeat)), (2, Poll::Ready(Outcome::Drop)));
    assert_eq!(finish(&mut world.start(APPEND)), accepted(AcceptStat::Success));
    assert_eq!((world.called(), world.places()), (2, 2));
}

/// A call can also be shed after others wait for it. All of them get its reply, which no connection notes.
#[test]
fn i8_repeats_of_a_call_that_is_shed_late_get_its_reply() {
    let mut world = World::new(Panics::Never, 9);
    world.dispatcher.intercept(Arc::new(|_: CallContext, _: Decoder, next: NextService| -> ResponseFuture {
        let mut polls = 0;
        Box::pin(poll_fn(move |_| {
            polls += 1;
            assert_eq!((next.name(), next.effect()), ("FAULTY", Effect::State));
            if polls == 1 { Poll::Pending } else { Poll::Ready(Err(CallFailure::Shed)) }
        }))
    }));
    let (mut first, mut repeat) = (world.start(APPEND), world.start(APPEND));
    assert!(poll(&mut first).is_pending() && poll(&mut repeat).is_pending());
    assert!(repeat.key().is_some());
    assert_eq!(finish(&mut first), system_error());
    assert_eq!(finish(&mut repeat), system_error());
    assert_eq!((first.key(), repeat.key()), (None, None));
    let cache = world.dispatcher.cache();
    assert_eq!((cache.len(), cache.counters().executed, world.places(), world.called()), (0, 0, 9, 0));
    assert!(poll(&mut world.start(APPEND)).is_pending(), "a new call");
}

#[test]
fn i6_a_panic_passes_interceptors_as_a_failure() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let mut world = World::new(Panics::WhenPolled, 1);
    let seen = Arc::clone(&failures);
    world.dispatcher.intercept(Arc::new(
        move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
            let (seen, results) = (Arc::clone(&seen), next.call(context, arguments));
            Box::pin(async move {
                let failure = results.await.unwrap_err();
                seen.lock().unwrap().push(failure);
                // Another answer than the program's.
                Ok(Stream::new())
            })
        },
    ));
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    world.dispatcher.intercept(Arc::new(
        move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
            assert!(count.fetch_add(1, Ordering::Relaxed) == 0, "the second time");
            next.call(context, arguments)
        },
    ));
    // First the program panics, then the inner interceptor.
    for (called, message) in [(1, "as asked"), (1, "the second time")] {
        assert_eq!(finish(&mut world.start(ECHO)), accepted(AcceptStat::Success));
        assert_eq!(*failures.lock().unwrap(), [CallFailure::Panicked], "{message}");
        let told = std::mem::take(&mut *world.watch.panics.lock().unwrap());
        assert!(told.len() == 1 && told[0].1.contains(message), "{told:?}");
        assert_eq!((world.called(), world.places()), (called, 1));
        failures.lock().unwrap().clear();
    }
}

/// Calls of RPCSEC_GSS pass interceptors and overseer as others do.
#[test]
fn calls_of_rpcsec_gss_pass_the_same_way() {
    let mut world = World::new(Panics::Never, 0);
    assert_eq!(opened(&world.dispatcher, &header(ECHO), Service::Integrity, Stream::new()), system_error());
    world.watch.places.store(1, Ordering::Relaxed);
    world.dispatcher.intercept(Arc::new(
        |context: CallContext, _: Decoder, _: NextService| -> ResponseFuture {
            let Credential::Gss(caller) = context.credential else { panic!("{:?}", context.credential) };
            Box::pin(ready(Ok(encode(&(caller.service as u32)).unwrap())))
        },
    ));
    let (reply, results) = opened(&world.dispatcher, &header(ECHO), Service::Integrity, Stream::new());
    assert_eq!((reply.success(), results.len(), world.called()), (Ok(()), 4, 0));
}

/// A subscriber that notes the spans of handlers, and how many of them are entered.
#[derive(Clone, Default)]
struct Spans {
    inside: Arc<AtomicU32>,
    fields: Arc<Mutex<Vec<String>>>,
}

struct Fields<'a>(&'a mut Vec<String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push(format!("{}={value:?}", field.name()));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "rpcrdma::serve"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut self.fields.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_handler_works_in_the_span_of_its_call() {
    let spans = Spans::default();
    // With a single dispatcher, a thread of another test that comes to a span first would switch it off for all.
    let _second = tracing::Dispatch::new(NoSubscriber::new());
    let _guard = tracing::subscriber::set_default(spans.clone());
    let mut world = World::new(Panics::Never, 1);
    let inside = Arc::clone(&spans.inside);
    world.dispatcher.intercept(Arc::new(
        move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
            let inside = Arc::clone(&inside);
            assert_eq!(inside.load(Ordering::Relaxed), 1, "when called");
            let mut results = next.call(context, arguments);
            Box::pin(poll_fn(move |cx| {
                assert_eq!(inside.load(Ordering::Relaxed), 1, "when polled");
                results.as_mut().poll(cx)
            }))
        },
    ));
    let mut call = world.start(ECHO);
    assert!(poll(&mut call).is_pending());
    assert_eq!(spans.inside.load(Ordering::Relaxed), 0, "between polls");
    assert_eq!(finish(&mut call), accepted(AcceptStat::Success));
    assert_eq!(spans.inside.load(Ordering::Relaxed), 0);
    assert_eq!(
        *spans.fields.lock().unwrap(),
        [
            "peer=10.0.0.1:1",
            "xid=77",
            &format!("program={NUMBER}"),
            "version=3",
            "procedure=1",
            "name=\"FAULTY\""
        ]
    );
}
