//! The receive queue, which the segments of Sends fill.
//!
//! A posted Receive owns its Buffers; a pooled Receive owns a reservation, which becomes memory when the first segment
//! of its message arrives. Buffers posted as a list are always given back; memory of a pooled Receive is given back
//! only with a message.

use std::collections::VecDeque;

use rpcrdma_verbs::{Buffer, ReceiveMemory, Status, WrId};

use crate::window::Refusal;

/// A Receive that a message is filling.
#[derive(Debug)]
struct Arriving {
    id: WrId,
    buffers: Vec<Buffer>,
    pooled: bool,
    capacity: usize,
    len: usize,
}

/// A filled or flushed Receive.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: WrId,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) len: usize,
}

/// The Receives of one end, in the order of posting.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    posted: VecDeque<(WrId, ReceiveMemory)>,
    arriving: Option<Arriving>,
}

impl Receives {
    pub(crate) fn post(&mut self, id: WrId, memory: ReceiveMemory) {
        self.posted.push_back((id, memory));
    }

    /// Places bytes of the current message at `offset`.
    pub(crate) fn place(&mut self, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        if self.arriving.is_none() {
            self.arriving = Some(self.attach()?);
        }
        let Some(arriving) = &mut self.arriving else { return Ok(()) };
        let end = offset.saturating_add(data.len());
        if end > arriving.capacity {
            // RFC 5041 §7.1: the message is too long for the buffer.
            let detail = format!("a Send of {end} bytes or more into a Receive of {}", arriving.capacity);
            return Err(Refusal::untagged(5, Status::RemoteOperation, detail));
        }
        let mut skip = offset;
        let mut rest = data;
        for buffer in &mut arriving.buffers {
            let len = buffer.len();
            if skip < len {
                let count = rest.len().min(len - skip);
                let (head, tail) = rest.split_at(count);
                if let Some(target) = buffer.get_mut(skip..skip + count) {
                    target.copy_from_slice(head);
                }
                rest = tail;
            }
            skip = skip.saturating_sub(len);
        }
        arriving.len = arriving.len.max(end);
        Ok(())
    }

    /// Takes the next Receive for a message whose first segment has arrived.
    fn attach(&mut self) -> Result<Arriving, Refusal> {
        let Some((id, memory)) = self.posted.pop_front() else {
            // RFC 5041 §7.1: no buffer is available for this message.
            let detail = "a Send although no Receive is posted".to_owned();
            return Err(Refusal::untagged(2, Status::ReceiverNotReady, detail));
        };
        let capacity = memory.capacity();
        let (buffers, pooled) = match memory {
            ReceiveMemory::Scatter(buffers) => (buffers, false),
            ReceiveMemory::Pooled(reserved) => (vec![reserved.into_buffer()], true),
            _ => (Vec::new(), false),
        };
        Ok(Arriving { id, buffers, pooled, capacity, len: 0 })
    }

    /// Ends the current message, which is complete.
    pub(crate) fn finish(&mut self) -> Option<Received> {
        let arriving = self.arriving.take()?;
        Some(Received { id: arriving.id, buffers: arriving.buffers, len: arriving.len })
    }

    /// Gives back the Receive that a message was filling, if there is one.
    pub(crate) fn abandon(&mut self) -> Option<Received> {
        let arriving = self.arriving.take()?;
        let buffers = if arriving.pooled { Vec::new() } else { arriving.buffers };
        Some(Received { id: arriving.id, buffers, len: 0 })
    }

    /// Gives back the next Receive that no message has reached.
    pub(crate) fn drain_one(&mut self) -> Option<Received> {
        let (id, memory) = self.posted.pop_front()?;
        let buffers = match memory {
            ReceiveMemory::Scatter(buffers) => buffers,
            _ => Vec::new(),
        };
        Some(Received { id, buffers, len: 0 })
    }
}
