//! The values of this side: their announcement, their changes, and the size of the Receives.

use super::super::{Characteristic, Characteristics, NotExchanged};
use super::{Progress, Response};
use crate::wire::sized;

/// The values of this side, and the peer's knowledge of them.
#[derive(Debug)]
pub(super) struct Own {
    /// Announced already or with the first operation.
    pub(super) values: Characteristics,
    pub(super) announcement: Announcement,
    /// The receive size in the last announcement to the peer, bytes.
    pub(super) told_size: u32,
    /// Changes to announce.
    pub(super) updates: Vec<Change>,
    pub(super) resize: Option<Resize>,
}

/// The first operation of this side, which announces its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The operation may not leave yet.
    Withheld,
    Due,
    Sent,
}

/// A change of this side to announce to the peer.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) value: Characteristic,
    /// The change completes one that the peer requested.
    pub(super) clears: bool,
}

/// A change of the size of our Receives in progress.
#[derive(Debug)]
pub(super) struct Resize {
    pub(super) size: u32,
    /// For a decrease: the last Call planned by the higher size.
    pub(super) until: Option<u64>,
    /// The peer requested the change.
    pub(super) asked: bool,
    /// The response that waits for the change, in profiles without "pending".
    pub(super) response: Option<Response>,
}

impl Own {
    pub(super) const fn new(values: Characteristics, told_size: u32) -> Self {
        let announcement = Announcement::Withheld;
        Self { values, announcement, told_size, updates: Vec::new(), resize: None }
    }

    /// Allows the first operation to be sent.
    pub(super) fn announce(&mut self) {
        if self.announcement == Announcement::Withheld {
            self.announcement = Announcement::Due;
        }
    }

    /// Whether the first operation has been sent.
    pub(super) fn is_announced(&self) -> bool {
        self.announcement == Announcement::Sent
    }

    /// Applies a value that a response announces. A waiting update leaves after the response, and must not announce the
    /// older value.
    pub(super) fn take_over(&mut self, value: Characteristic) {
        if let Some(change) = self.updates.iter_mut().find(|change| change.value.is_same_kind(&value)) {
            change.value = value.clone();
        }
        self.values.apply(value);
    }

    /// Applies a value that an update announces.
    pub(super) fn set(&mut self, value: Characteristic, clears: bool) {
        self.values.apply(value.clone());
        // Before the first operation there is no announcement to correct.
        if !self.is_announced() && !clears {
            return;
        }
        match self.updates.iter_mut().find(|change| change.value.is_same_kind(&value)) {
            Some(change) => *change = Change { clears: clears || change.clears, value },
            None => self.updates.push(Change { value, clears }),
        }
    }

    /// Returns the next change to announce.
    pub(super) fn next_update(&mut self) -> Option<Change> {
        if self.updates.is_empty() {
            return None;
        }
        let change = self.updates.remove(0);
        if let Characteristic::ReceiveSize(size) = change.value {
            self.told_size = size;
        }
        Some(change)
    }

    /// Whether an operation of this side is due, or a change of Receives is in progress.
    pub(super) fn has_something_to_do(&self) -> bool {
        self.announcement == Announcement::Due || self.resize.is_some() || !self.updates.is_empty()
    }

    /// Begins to grow the Receives; returns the size of Receives posted from now on, if that changes.
    pub(super) fn grow(&mut self, size: u32) -> Result<Option<u32>, NotExchanged> {
        let now = self.resize.as_ref().map_or(self.values.receive_size, |resize| resize.size);
        if size < now {
            return Err(NotExchanged::Reduction { size, now });
        }
        if size == now {
            return Ok(None);
        }
        let old = self.resize.take();
        let (asked, response, until) =
            old.map_or((false, None, None), |old| (old.asked, old.response, old.until));
        // A size between the requested and the present one is still a decrease: no smaller Receive may be posted yet.
        let until = until.filter(|_| size < self.values.receive_size);
        self.resize = Some(Resize { size, until, asked, response });
        Ok(until.is_none().then_some(size))
    }

    /// Begins a change of the Receives that the peer requests; returns the size of Receives posted from now on, if that
    /// changes. `last_call` is the number of our last Call.
    pub(super) fn resize(&mut self, size: u32, last_call: u64, response: Option<Response>) -> Option<u32> {
        let until = (size < self.values.receive_size).then_some(last_call);
        self.resize = Some(Resize { size, until, asked: true, response });
        until.is_none().then_some(size)
    }

    /// Whether no other change of the Receives may begin. An unsent update that completes an earlier change would seem
    /// to complete the next one too.
    pub(super) fn is_resizing(&self) -> bool {
        let completes =
            |change: &Change| change.clears && matches!(change.value, Characteristic::ReceiveSize(_));
        self.resize.is_some() || self.updates.iter().any(completes)
    }

    /// Returns the change of the Receives if it is complete now. `least` is the size of the smallest posted Receive,
    /// bytes.
    pub(super) fn resized(&mut self, progress: Progress, least: Option<usize>) -> Option<Resize> {
        self.resize.take_if(|resize| match resize.until {
            Some(last) => progress.oldest.is_none_or(|oldest| oldest > last),
            None => least.is_none_or(|least| least >= sized(resize.size)),
        })
    }
}
