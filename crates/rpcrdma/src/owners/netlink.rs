//! Questions to the kernel by netlink (`netlink(7)`): one message in each direction.
//!
//! The kernel answers while the question is being sent, so nothing here waits. The socket stays open, so a process
//! without a spare file descriptor can ask too.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// `NLMSG_ERROR` of `linux/netlink.h`.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// Length of the buffer for one answer, in bytes, with attributes that were not asked for.
const ROOM: usize = 4096;

/// A socket of one netlink family.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Mutex<OwnedFd>,
    sequence: AtomicU32,
}

/// A message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) body: &'a [u8],
}

impl Netlink {
    /// Opens a socket of this family; `None` is `NETLINK_ROUTE`.
    pub(super) fn open(family: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, family)?;
        Ok(Self { socket: Mutex::new(socket), sequence: AtomicU32::new(0) })
    }

    /// Asks a question, and hands the answer to `read`.
    ///
    /// # Errors
    /// Those of the socket, those that the kernel answers, and those of `read`.
    pub(super) fn ask<T>(
        &self,
        kind: u16,
        body: &[u8],
        read: impl FnOnce(Message<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let length = HEADER + body.len();
        let mut question = Vec::with_capacity(length);
        question.extend_from_slice(&u32::try_from(length).unwrap_or_default().to_ne_bytes());
        question.extend_from_slice(&kind.to_ne_bytes());
        question.extend_from_slice(&REQUEST.to_ne_bytes());
        question.extend_from_slice(&sequence.to_ne_bytes());
        question.extend_from_slice(&[0; 4]);
        question.extend_from_slice(body);
        send(&*socket, &question, SendFlags::empty())?;
        let mut room = vec![0_u8; ROOM];
        loop {
            let (length, _) = recv(&*socket, &mut room[..], RecvFlags::DONTWAIT)?;
            let bytes = room.get(..length).unwrap_or_default();
            // A question that failed half way may have left its answer behind.
            if sequence_of(bytes)? == sequence {
                return read(message(bytes)?);
            }
        }
    }
}

/// Reads a field of an answer.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that is too short"))
}

fn sequence_of(bytes: &[u8]) -> io::Result<u32> {
    Ok(u32::from_ne_bytes(number(bytes, 8)?))
}

/// Splits the header off an answer.
fn message(bytes: &[u8]) -> io::Result<Message<'_>> {
    let kind = u16::from_ne_bytes(number(bytes, 4)?);
    if kind == ERROR {
        let error = i32::from_ne_bytes(number(bytes, HEADER)?);
        return Err(io::Error::from_raw_os_error(error.saturating_neg()));
    }
    Ok(Message { kind, body: bytes.get(HEADER..).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_answers_without_a_whole_header() {
        let mut bytes = vec![0; HEADER + 4];
        bytes[4] = 20;
        bytes[8] = 7;
        assert_eq!(message(&bytes).unwrap(), Message { kind: u16::from_ne_bytes([20, 0]), body: &[0; 4] });
        assert_eq!(sequence_of(&bytes).unwrap(), u32::from_ne_bytes([7, 0, 0, 0]));
        for length in 0..12 {
            assert!(sequence_of(&bytes[..length]).is_err(), "{length}");
        }
        bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        bytes[HEADER..].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(message(&bytes).unwrap_err().kind(), io::ErrorKind::NotFound);
        for length in 0..bytes.len() {
            assert!(message(&bytes[..length]).is_err(), "{length}");
        }
    }

    /// The next question skips the answer to an earlier one.
    #[test]
    fn an_answer_that_was_left_behind_is_passed_over() {
        let netlink = match Netlink::open(None) {
            Ok(netlink) => netlink,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        // A message of a kind that the kernel does not know, and answers with an error.
        let left = [20_u32.to_ne_bytes(), [0xff, 0xff, 1, 0], 99_u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
        send(&*netlink.socket.lock().unwrap(), &left, SendFlags::empty()).unwrap();
        let error = netlink.ask(u16::MAX, &[0; 4], |_| Ok(())).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    }
}
