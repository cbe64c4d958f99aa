//! The numbers that `top` shows: the last two looks at a server, and what the user has chosen.

use std::collections::HashMap;
use std::time::Instant;

use rpcrdma::Latencies;

use crate::commands::observed::Observed;
use crate::commands::serve::observe::protocol::Order;
use crate::commands::serve::status::{ClientStatus, Clients, ProcedureStatus, Status};
use crate::exit::Failure;

/// A look at a server.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Status,
    /// The visible clients; `None` if the place knows none.
    pub(super) clients: Option<Clients>,
}

/// A question to a server: its state, and the clients that are visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    skip: usize,
    pub(super) count: usize,
    by: Order,
    reverse: bool,
}

impl Question {
    /// Asks a server.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) async fn ask(self, server: &mut Observed) -> Result<Sample, Failure> {
        let status = server.status().await?;
        let clients = if server.knows_clients() {
            Some(server.clients((self.skip, Some(self.count)), self.by, self.reverse).await?)
        } else {
            None
        };
        Ok(Sample { at: Instant::now(), status, clients })
    }
}

/// A procedure in the last interval.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) per_second: f64,
    pub(super) latencies: Latencies,
    pub(super) errors: u64,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) place: String,
    pub(super) order: Order,
    pub(super) is_reverse: bool,
    pub(super) has_colours: bool,
    /// Clients above the first visible one.
    pub(super) skip: usize,
    /// Lines for clients.
    page: usize,
    pub(super) last: Option<Sample>,
    before: Option<Sample>,
    /// The reason why the server did not answer the last question.
    pub(super) trouble: Option<String>,
}

impl Model {
    pub(super) fn new(place: &str, order: Order, has_colours: bool) -> Self {
        Self {
            place: place.to_owned(),
            order,
            is_reverse: false,
            has_colours,
            skip: 0,
            page: 1,
            last: None,
            before: None,
            trouble: None,
        }
    }

    /// Returns the question for what is visible.
    pub(super) const fn question(&self) -> Question {
        Question { skip: self.skip, count: self.page, by: self.order, reverse: self.is_reverse }
    }

    /// Takes a look at the server.
    pub(super) fn take(&mut self, sample: Sample) {
        self.trouble = None;
        let total = sample.clients.as_ref().map_or(0, |clients| clients.total);
        self.skip = self.skip.min(total.saturating_sub(1));
        // Counters of another process begin anew.
        let same = self.last.take().filter(|last| last.status.process.pid == sample.status.process.pid);
        self.before = same;
        self.last = Some(sample);
    }

    /// Notes that the server did not answer.
    pub(super) fn trouble(&mut self, reason: String) {
        self.trouble = Some(reason);
    }

    /// Notes the height of the screen.
    pub(super) fn resized(&mut self, height: u16) {
        let procedures = self.last.as_ref().map_or(0, |last| last.status.procedures.len());
        self.page = super::view::client_rows(height, procedures).max(1);
    }

    /// Chooses the next order, or the one before.
    pub(super) fn sort_by_next(&mut self, forwards: bool) {
        let orders = super::view::COLUMNS.map(|column| column.order);
        let at = orders.iter().position(|order| *order == Some(self.order)).unwrap_or(0);
        let next = if forwards { at + 1 } else { at + orders.len() - 1 };
        let in_turn = |step: usize| {
            let place = if forwards { next + step } else { next + orders.len() - step };
            orders.get(place % orders.len()).copied().flatten()
        };
        if let Some(order) = (0..orders.len()).find_map(in_turn) {
            self.order = order;
            self.skip = 0;
        }
    }

    /// Turns the order round.
    pub(super) fn reverse(&mut self) {
        self.is_reverse = !self.is_reverse;
        self.skip = 0;
    }

    /// Moves through the clients.
    pub(super) fn scroll(&mut self, by: isize) {
        let last = self.last.as_ref().and_then(|last| last.clients.as_ref());
        let most = last.map_or(0, |clients| clients.total.saturating_sub(1));
        self.skip = self.skip.saturating_add_signed(by).min(most);
    }

    /// Moves through the clients by pages.
    pub(super) fn page(&mut self, pages: isize) {
        self.scroll(isize::try_from(self.page).unwrap_or(isize::MAX).saturating_mul(pages));
    }

    /// Returns the seconds between the last two looks.
    fn seconds(&self) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        Some(last.at.duration_since(before.at).as_secs_f64()).filter(|seconds| *seconds > 0.0)
    }

    /// Returns how fast a counter grows, in units a second; `None` before the second look.
    pub(super) fn rate(&self, counter: impl Fn(&Status) -> u64) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = counter(&last.status).saturating_sub(counter(&before.status));
        Some(grown as f64 / self.seconds()?)
    }

    /// Returns the procedures, the busiest first. Before the second look, times are those since the start of the server.
    pub(super) fn procedures(&self) -> Vec<Rate> {
        let Some(last) = &self.last else { return Vec::new() };
        let key = |one: &ProcedureStatus| (one.program.clone(), one.version, one.procedure.clone());
        let before: HashMap<_, _> = self
            .before
            .iter()
            .flat_map(|before| before.status.procedures.iter().map(|one| (key(one), one)))
            .collect();
        let seconds = self.seconds();
        let rates = last.status.procedures.iter().map(|one| {
            let earlier = before.get(&key(one));
            let grown = one.calls.saturating_sub(earlier.map_or(0, |earlier| earlier.calls));
            let latencies = one.latency.latencies();
            Rate {
                name: format!("{} {}", one.program, one.procedure),
                calls: one.calls,
                per_second: seconds.map_or(0.0, |seconds| grown as f64 / seconds),
                latencies: earlier.map_or(latencies, |earlier| latencies.since(&earlier.latency.latencies())),
                errors: one.errors.values().sum(),
            }
        });
        let mut rates: Vec<Rate> = rates.collect();
        rates.sort_by(|one, other| {
            other.per_second.total_cmp(&one.per_second).then(other.calls.cmp(&one.calls))
        });
        rates
    }

    /// Returns the visible clients.
    pub(super) fn clients(&self) -> &[ClientStatus] {
        let clients = self.last.as_ref().and_then(|last| last.clients.as_ref());
        clients.map_or(&[], |clients| clients.clients.as_slice())
    }
}
