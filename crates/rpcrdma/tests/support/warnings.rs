//! The warnings that a test causes, and its events of one target.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber that keeps warnings.
#[derive(Clone, Default)]
pub struct Warnings {
    lines: Arc<Mutex<Vec<String>>>,
    /// Target whose events of level INFO are kept, too.
    also: Option<&'static str>,
}

impl Warnings {
    /// Keeps the warnings of this thread, until the guard is dropped.
    pub fn of_this_thread() -> (Self, impl Sized) {
        Self::default().begin()
    }

    /// Keeps the events of this target, too, down to INFO.
    pub fn and_events_of(target: &'static str) -> (Self, impl Sized) {
        Self { also: Some(target), ..Self::default() }.begin()
    }

    fn begin(self) -> (Self, impl Sized) {
        let warnings = self;
        // With a single dispatcher, a thread of another test that reaches an event first would switch the event off for
        // all.
        let second = Dispatch::new(NoSubscriber::new());
        let guard = tracing::subscriber::set_default(warnings.clone());
        (warnings, (guard, second))
    }

    /// Returns the warnings since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let also = *metadata.level() <= Level::INFO && self.also == Some(metadata.target());
        *metadata.level() <= Level::WARN || also
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
