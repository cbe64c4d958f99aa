//! The tests that every provider of the `rpcrdma-verbs` contract passes.
//!
//! A provider's tests name their fixture once, and get one test for each case:
//!
//! ```ignore
//! rpcrdma_provider_tests::tests! {
//!     #[tokio::test(start_paused = true)]
//!     => MyFixture::new()
//! }
//! ```
//!
//! The cases use a provider only through its trait objects. They hold it to the contract and to nothing beyond it. If
//! the contract leaves a result open (the meaning of a Write's completion, whether a Read Response passes a Send),
//! every outcome passes. Each wait has a time limit. A [`Node`](harness::Node) watches each queue pair. It fails the
//! test when a completion comes twice, is unknown, or is missing at the end of the connection.

// The whole crate is test code: it reports failures by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod ending;
pub mod harness;
pub mod invalidation;
pub mod limits;
pub mod ordering;
pub mod protection;
pub mod receives;
pub mod setup;
pub mod transfers;

use rpcrdma_verbs::{BoxFuture, Connector, Listener};

/// A provider that is to be tested.
pub trait Fixture: Send + Sync {
    /// Returns a connector to the addresses of [`listen`](Self::listen).
    fn connector(&self) -> Box<dyn Connector>;

    /// Listens at a free address.
    fn listen(&self) -> BoxFuture<'_, Box<dyn Listener>>;

    /// Returns the length of the longest private data in either direction, in bytes.
    fn max_private_data(&self) -> usize;

    /// Returns whether 1 MiB goes through RDMA Write and RDMA Read without a copy on the receiving side
    /// ([`payload_bytes_copied`](rpcrdma_verbs::Counters::payload_bytes_copied)).
    fn places_directly(&self) -> bool {
        true
    }

    /// Returns where the provider differs from the contract. The cases check that it does, where they can.
    fn differences(&self) -> &[Difference] {
        &[]
    }
}

/// A place where a provider may differ from the contract, because its fabric is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The peer can use a window from its reservation on.
    OpenReservations,
    /// Windows have addresses of the process.
    ProcessAddresses,
    /// The receiver does not learn whether the sender asked for a solicited event.
    NoSolicitedFlag,
    /// The fabric fills private data up with zeros.
    PaddedPrivateData,
    /// An invalidation ends Reads of the window that are under way.
    InterruptedReads,
    /// A Read that is under way goes on after the invalidation, and can see what the memory holds by then.
    LateReads,
    /// A Read of a window that the peer may only write is answered.
    ReadableWriteWindows,
    /// An invalidation of a key without a window harms the peer's system, so no case sends one.
    DangerousInvalidations,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OpenReservations,
        Self::ProcessAddresses,
        Self::NoSolicitedFlag,
        Self::PaddedPrivateData,
        Self::InterruptedReads,
        Self::LateReads,
        Self::ReadableWriteWindows,
        Self::DangerousInvalidations,
    ];

    /// Returns what the contract says, and what the provider does instead.
    #[must_use]
    pub const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenReservations => (
                "A window is closed until its bind",
                "open from its reservation on, since a registration is the window",
            ),
            Self::ProcessAddresses => {
                ("Keys and addresses cannot be guessed", "addresses are those of the process")
            }
            Self::NoSolicitedFlag => {
                ("A Receive tells whether a solicited event was asked for", "never told")
            }
            Self::PaddedPrivateData => ("Private data arrives as it was sent", "filled up with zeros"),
            Self::InterruptedReads => (
                "An invalidation waits for Reads of the window that are under way",
                "such Reads fail, and the connection ends",
            ),
            Self::LateReads => (
                "Memory that came back is not read any more",
                "a Read that is under way can see later content",
            ),
            Self::ReadableWriteWindows => {
                ("A window has one right, Read or Write", "a window for Writes can be read too")
            }
            Self::DangerousInvalidations => (
                "An invalidation of a key without a window ends the connection",
                "not tried: it can stop the peer's kernel",
            ),
        }
    }
}

impl dyn Fixture + '_ {
    /// Returns whether the provider differs here.
    #[must_use]
    pub fn differs(&self, difference: Difference) -> bool {
        self.differences().contains(&difference)
    }

    /// Prints a line for each difference, with the name of the provider: the table of differences is made of them.
    pub fn print_differences(&self, name: &str) {
        for difference in Difference::ALL {
            let (contract, deviation) = difference.texts();
            let text = if self.differs(difference) { deviation } else { "as the contract" };
            println!("difference: {name}: {contract}: {text}");
        }
    }
}

/// Makes one test for each case, with the given attributes and a fixture of its own.
#[macro_export]
macro_rules! tests {
    ($(#[$attribute:meta])+ => $fixture:expr) => {
        $crate::tests! {
            @cases [$(#[$attribute])+] [$fixture]
            ordering: sends_arrive_in_order, a_send_follows_the_writes_before_it, later_writes_win,
                express_sends_keep_their_order, i3_no_send_passes_an_earlier_express_one,
                reads_and_sends_do_not_wait_for_each_other,
                sends_and_writes_complete_in_order;
            protection: zero_length_requests_check_no_key, a_wrong_key_is_refused,
                writes_outside_the_range_are_refused, reads_outside_the_range_are_refused,
                the_other_right_is_refused, the_key_of_another_connection_is_refused,
                a_reserved_window_is_closed, a_locally_invalidated_window_is_closed,
                a_remotely_invalidated_window_is_closed, the_bytes_around_a_window_are_safe,
                a_bad_second_target_ends_the_connection;
            invalidation: remote_invalidation_gives_memory_back,
                remote_invalidation_of_an_unknown_key_ends_the_connection,
                invalidation_waits_for_half_sent_read_responses, invalidation_of_nothing_succeeds,
                window_memory_comes_back_once, a_window_is_open_as_soon_as_its_key_is_known,
                express_sends_do_not_pass_invalidations, remote_invalidation_waits_for_read_responses,
                a_window_may_close_under_a_write, a_closing_window_takes_no_new_read;
            receives: scattered_messages_fill_buffers_in_order, pooled_receives_deliver,
                i3_pooled_receives_are_backed, a_message_may_fill_its_receive_but_not_more,
                a_message_without_a_receive_ends_the_connection, the_solicited_flag_arrives;
            transfers: sends_of_many_sizes, writes_of_many_sizes, reads_of_many_sizes,
                writes_fill_several_targets, reads_join_several_sources, constant_memory_can_be_exposed, bulk_both_ways_does_not_deadlock,
                placement_copies_nothing, more_reads_than_the_limit, read_limits_are_negotiated;
            ending: abort_flushes_everything, graceful_disconnect_delivers_what_was_posted,
                both_may_disconnect_at_once, posting_fails_after_the_end, a_dropped_queue_pair_ends_the_connection,
                windows_give_their_memory_back_at_the_end;
            limits: a_full_send_queue_refuses, a_full_receive_queue_refuses, room_is_counted_by_segments, windows_run_out_and_come_back,
                contradictory_requests_are_given_back, binds_of_nothing_fail, keys_cannot_be_guessed;
            setup: private_data_goes_both_ways, private_data_follows_the_abilities, too_much_private_data_is_refused, rejection_carries_private_data,
                nobody_listens, a_listener_serves_many, addresses_are_told;
        }
    };
    (@cases $attributes:tt $fixture:tt $($group:ident: $($case:ident),+;)+) => {
        $($crate::tests! { @group $attributes $fixture $group: $($case),+ })+
    };
    (@group $attributes:tt $fixture:tt $group:ident: $($case:ident),+) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $($crate::tests! { @case $attributes $fixture $group $case })+
        }
    };
    (@case [$(#[$attribute:meta])+] [$fixture:expr] $group:ident $case:ident) => {
        $(#[$attribute])+
        async fn $case() {
            $crate::$group::$case(&$fixture).await;
        }
    };
}
