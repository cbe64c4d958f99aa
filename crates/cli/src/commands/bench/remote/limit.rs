//! The limit of a measurement, found from its numbers by one rule.
//!
//! A link that raw TCP filled without a busy processor limits. Otherwise the first of these that is busy does: the client's
//! process, the server's process, one of both machines, the link. If none is busy, the number of operations in flight limits: the
//! sides wait for each other. Raw TCP stands for the link, so its own streams need no base.

use serde::Serialize;

/// Share of its processors from which on a process limits.
const BUSY: f64 = 0.9;
/// Share of all processors of a machine from which on the machine limits, whoever uses them.
const FULL: f64 = 0.95;
/// Share of raw TCP from which on the link limits.
const LINK: f64 = 0.9;

/// Load of a side in a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busy {
    /// Processors that its process kept busy on average.
    pub(super) process: f64,
    /// Share of all processors of the machine that worked, for anyone.
    pub(super) machine: f64,
    pub(super) processors: u32,
}

/// Numbers of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) client: Busy,
    pub(super) server: Busy,
    pub(super) connections: u32,
    /// Calls in flight on a connection; `None` for raw streams.
    pub(super) depth: Option<u32>,
    /// Calls that the server lets a connection have in flight.
    pub(super) credits: u32,
    /// Median time of a call, in microseconds.
    pub(super) microseconds: f64,
    /// Ratio to the raw stream, if there is one.
    pub(super) ratio: Option<f64>,
    /// The link limited the raw stream.
    pub(super) is_link_slow: bool,
}

/// The limit of a measurement, and the sentence that says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Limit {
    /// `client-cpu`, `server-cpu`, `client-machine`, `server-machine`, `link`, `depth` or `credits`.
    pub(super) by: &'static str,
    pub(super) text: String,
}

impl Limit {
    /// Returns whether the link limits.
    pub(super) fn is_link(&self) -> bool {
        self.by == "link"
    }

    pub(super) fn of(facts: &Facts) -> Self {
        let limit = |by, text| Self { by, text };
        let Facts { client, server, connections, .. } = *facts;
        let filled = facts.ratio.filter(|ratio| *ratio >= LINK);
        if let Some(ratio) = filled.filter(|_| facts.is_link_slow) {
            let text =
                format!("the link limits: the rate is {ratio:.2} of raw TCP, which kept no processor busy");
            return limit("link", text);
        }
        for (side, who, by) in [(client, "client", "client-cpu"), (server, "server", "server-cpu")] {
            // A connection has a thread of its own at the client, and a task at the server.
            let usable = f64::from(connections.min(side.processors).max(1));
            if side.process >= BUSY * usable {
                let text = format!(
                    "the {who}'s CPU limits: its process kept {:.2} processors busy, and {connections} connection(s) can \
                     use about {usable}",
                    side.process
                );
                return limit(by, text);
            }
        }
        for (side, who, by) in [(client, "client", "client-machine"), (server, "server", "server-machine")] {
            if side.machine >= FULL {
                let text = format!(
                    "the {who}'s machine limits: {:.0} % of its {} processors worked, {:.2} for this process",
                    side.machine * 100.0,
                    side.processors,
                    side.process
                );
                return limit(by, text);
            }
        }
        let Some(depth) = facts.depth else {
            let text = format!(
                "the link or TCP on it limits: client and server kept only {:.2} and {:.2} processors busy",
                client.process, server.process
            );
            return limit("link", text);
        };
        if let Some(ratio) = filled {
            return limit("link", format!("the link limits: the rate is {ratio:.2} of raw TCP"));
        }
        let against = facts.ratio.map_or_else(
            || "no raw TCP was measured to compare".to_owned(),
            |ratio| format!("the rate is {ratio:.2} of raw TCP"),
        );
        let us = facts.microseconds;
        if depth > facts.credits {
            let credits = facts.credits;
            let text = format!(
                "credits limit: the server lets {credits} of {depth} calls be in flight, each took {us:.0} us, and {against}"
            );
            return limit("credits", text);
        }
        let text = format!(
            "the depth limits: {depth} in flight on each of {connections} connection(s) took {us:.0} us each, and {against}"
        );
        limit("depth", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Busy = Busy { process: 0.2, machine: 0.3, processors: 4 };

    fn facts() -> Facts {
        Facts {
            client: IDLE,
            server: IDLE,
            connections: 1,
            depth: Some(16),
            credits: 128,
            microseconds: 120.0,
            ratio: Some(0.5),
            is_link_slow: false,
        }
    }

    /// Each sentence has the number that it follows from.
    #[test]
    fn what_limits_is_found_by_the_first_busy_part() {
        let busy = Busy { process: 0.93, ..IDLE };
        let full = Busy { machine: 0.97, ..IDLE };
        for (facts, by, number) in [
            (
                Facts { client: busy, server: busy, ..facts() },
                "client-cpu",
                "0.93 processors busy, and 1 connection(s) can use about 1",
            ),
            (
                Facts { server: busy, client: full, ..facts() },
                "server-cpu",
                "0.93 processors busy, and 1 connection(s) can use about 1",
            ),
            // Two connections could use two processors.
            (Facts { server: busy, connections: 2, ..facts() }, "depth", "16 in flight on each of 2"),
            (Facts { client: full, ..facts() }, "client-machine", "97 % of its 4 processors"),
            (Facts { server: full, ..facts() }, "server-machine", "97 % of its 4 processors"),
            (Facts { ratio: Some(0.95), ..facts() }, "link", "0.95 of raw TCP"),
            // Faster processors would not help.
            (
                Facts { client: busy, server: full, ratio: Some(0.95), is_link_slow: true, ..facts() },
                "link",
                "0.95 of raw TCP, which kept no processor busy",
            ),
            (Facts { client: busy, is_link_slow: true, ..facts() }, "client-cpu", "0.93 processors busy"),
            (Facts { client: busy, ratio: Some(0.95), ..facts() }, "client-cpu", "0.93 processors busy"),
            (Facts { depth: None, ratio: None, ..facts() }, "link", "0.20 and 0.20"),
            (facts(), "depth", "took 120 us each, and the rate is 0.50"),
            (Facts { ratio: None, ..facts() }, "depth", "no raw TCP was measured"),
            (Facts { depth: Some(200), ..facts() }, "credits", "128 of 200 calls"),
        ] {
            let limit = Limit::of(&facts);
            assert!(limit.by == by && limit.text.contains(number), "{facts:?}: {limit:?}");
        }
    }
}
