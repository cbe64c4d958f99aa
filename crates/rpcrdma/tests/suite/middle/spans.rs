//! The span of a call.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use rpcrdma::Retry;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::{Answer, World, read};

/// A subscriber that keeps the spans of calls, and events with the number of the span that they are in.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spans: Vec<String>,
    entered: Vec<u64>,
    events: Vec<(Option<u64>, String)>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        matches!(metadata.target(), "rpcrdma::call" | "rpcrdma::retry")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("{} ", span.metadata().name()));
        span.record(&mut line);
        let mut state = self.0.lock().unwrap();
        state.spans.push(line.0);
        Id::from_u64(state.spans.len().try_into().unwrap())
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().target()));
        event.record(&mut line);
        let mut state = self.0.lock().unwrap();
        let span = state.entered.last().copied();
        state.events.push((span, line.0));
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_in_one_span_with_all_its_attempts() {
    let kept = Kept::default();
    // With a single dispatcher, a thread of another test that reaches an event first would switch the event off for all.
    let _second = Dispatch::new(NoSubscriber::new());
    let _guard = tracing::subscriber::set_default(kept.clone());
    let world = World::new([Answer::SystemError; 2]).await;
    kept.0.lock().unwrap().events.clear();
    world.handle().retry(Retry::new(3)).call_raw(read(1)).await.unwrap();
    world.client.call_raw(read(1)).await.unwrap();
    let state = std::mem::take(&mut *kept.0.lock().unwrap());
    assert_eq!(state.spans.len(), 2, "{:?}", state.spans);
    for span in &state.spans {
        assert!(span.starts_with("rpcrdma::call ") && span.contains("name=\"READ\""), "{span}");
        assert!(span.contains("to=192.0.2.1:20049") && span.contains("procedure=1"), "{span}");
    }
    let told: Vec<_> =
        state.events.iter().map(|(span, line)| (*span, line.split(' ').next().unwrap())).collect();
    let (call, retry) = ("rpcrdma::call", "rpcrdma::retry");
    let expected = [
        (Some(1), call),
        (Some(1), retry),
        (Some(1), call),
        (Some(1), retry),
        (Some(1), call),
        (Some(2), call),
    ];
    assert_eq!(told, expected);
    let [_, (_, again), ..] = &state.events[..] else { panic!("{:?}", state.events) };
    assert!(again.contains("attempts=1 ") && again.contains("pause="), "{again}");
}
