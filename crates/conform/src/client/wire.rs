//! The version that the tester speaks, and its properties in Version Two.
//!
//! This module owns only bytes. It never fails: the tester encodes only what its version has.

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::two::transmission::{
    Property, SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE,
};
use rpcrdma_proto::wire::two::{self, Exchange, Value};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec, Direction, Header};

use super::stage::ANNOUNCED;
use crate::message::u32_of;

/// Maximum number of transmissions of a reply, as the tester announces it.
const RESPONSE_LIMIT: u32 = 8;

/// The version of the tester.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) codec: &'static dyn Codec,
    /// The announced size of the tester's Receives in Version Two, in bytes.
    pub(super) receive_size: usize,
    /// Whether the tester announces transmission groups (rtrext-02 §8).
    pub(super) groups: bool,
}

impl Wire {
    pub(super) fn new(profile: Option<Profile>) -> Self {
        let codec = profile.map_or(&V1 as &'static dyn Codec, Profile::codec);
        Self { codec, receive_size: ANNOUNCED, groups: false }
    }

    fn rules(&self) -> Option<two::Rules> {
        self.codec.rules().two
    }

    /// Returns the profile of Version Two, if the tester speaks that version.
    pub(super) fn profile(&self) -> Option<Profile> {
        self.rules().map(|rules| rules.profile)
    }

    /// Returns whether a credit is for a message, and not for a call.
    pub(super) fn counts_messages(&self) -> bool {
        self.rules().is_some_and(|rules| rules.counts_messages)
    }

    /// Returns a message to the client about one of its calls.
    pub(super) fn encode(&self, xid: u32, credit: u32, body: Body, payload: &[u8]) -> Bytes {
        self.directed(Direction::Reply, xid, credit, body, payload)
    }

    /// Returns a message to the client about nothing that the client asked.
    pub(super) fn encode_operation(&self, xid: u32, credit: u32, body: Body) -> Bytes {
        self.directed(Direction::Call, xid, credit, body, &[])
    }

    /// Returns a message of this direction.
    pub(super) fn directed(
        &self,
        direction: Direction,
        xid: u32,
        credit: u32,
        body: Body,
        payload: &[u8],
    ) -> Bytes {
        let body = match body {
            Body::Message(mut lists) => {
                if self.rules().is_some_and(|rules| !rules.returns_reply_chunk) {
                    lists.reply = None;
                }
                Body::Message(lists)
            }
            body => body,
        };
        let version = self.codec.rules().version;
        let direction = self.rules().map(|_| direction);
        let mut out = BytesMut::new();
        self.codec.encode(&Header { xid, version, credit, direction, invalidate: 0, body }, &mut out);
        out.put_slice(payload);
        out.freeze()
    }

    /// Returns the number of the property "receive buffer size".
    pub(super) fn receive_size_id(&self) -> u32 {
        if self.profile() == Some(Profile::P3) { 2 } else { 1 }
    }

    /// Returns the number of a property of transmission groups, if the profile has them.
    pub(super) fn property(&self, property: Property) -> Option<u32> {
        property.id(self.profile()?)
    }

    /// Returns a property that is one word.
    pub(super) fn word(id: u32, value: u32) -> Value {
        Value { id, data: Bytes::copy_from_slice(&value.to_be_bytes()) }
    }

    /// Returns the announcement of the tester.
    pub(super) fn properties(&self) -> Exchange {
        let mut start = vec![Self::word(self.receive_size_id(), u32_of(self.receive_size))];
        let support = SUPPORT_REQUEST | SUPPORT_RESPONSE | SUPPORT_CONTINUATION;
        let words = [(Property::Support, support), (Property::ResponseLimit, RESPONSE_LIMIT)];
        for (property, word) in words.into_iter().filter(|_| self.groups) {
            start.extend(self.property(property).map(|id| Self::word(id, word)));
        }
        Exchange::Initial { constant: (0..start.len()).collect(), start }
    }
}
