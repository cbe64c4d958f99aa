//! Lookup of a service: the order of questions to rpcbind.
//!
//! GETADDR answers only for the transport of the question (RFC 1833 §2.2.1). So an `rdma` address is asked for over TCP
//! by GETADDRLIST, then by DUMP. For TCP, GETADDR comes first and version 2 GETPORT last. After a question that rpcbind
//! refuses, or answers with nothing, comes the next. When none is left the service isn't announced.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Stream, Text};
use thiserror::Error;

use super::{
    AddressText, IPPROTO_TCP, Netid, Request, Rpcb, RpcbEntryList, RpcbList, UniversalAddress, VERSION_3,
    VERSION_4,
};

/// A question to rpcbind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    GetAddr(u32),
    GetAddrList,
    Dump(u32),
    GetPort,
}

/// Questions for TCP; version 2 has no IPv6.
const TCP: &[Question] = &[Question::GetAddr(VERSION_4), Question::GetAddr(VERSION_3), Question::GetPort];
const TCP6: &[Question] = &[Question::GetAddr(VERSION_4), Question::GetAddr(VERSION_3)];
/// Questions for RPC-over-RDMA, asked over TCP.
const RDMA: &[Question] = &[Question::GetAddrList, Question::Dump(VERSION_4), Question::Dump(VERSION_3)];

/// The reason why a lookup ended without an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// rpcbind knows no such service.
    #[error("rpcbind knows no program {program} version {version} on {netid}")]
    NotRegistered {
        /// Program number.
        program: u32,
        /// Version of the program.
        version: u32,
        /// The transport.
        netid: Netid,
    },
    /// An answer of rpcbind doesn't decode.
    #[error("rpcbind's answer is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// A question can't be encoded.
    #[error("question can't be encoded: {0}")]
    Encode(#[from] EncodeError),
}

/// The next step of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Call rpcbind, then hand the reply to [`Lookup::handle_results`] or [`Lookup::handle_refusal`].
    Call {
        /// Version of rpcbind.
        version: u32,
        /// Procedure.
        procedure: u32,
        /// Its arguments.
        arguments: Stream,
    },
    /// The service listens here.
    Found(SocketAddr),
}

/// The search for one service. [`start`](Self::start) and the `handle_*` methods return the next step.
#[derive(Clone, Debug)]
pub struct Lookup {
    program: u32,
    version: u32,
    netid: Netid,
    host: IpAddr,
    questions: std::slice::Iter<'static, Question>,
    asked: Option<Question>,
}

impl Lookup {
    /// Creates a search for `program` in `version` on the transport `netid` of the machine `host`, whose rpcbind is
    /// asked over TCP. A service that listens on all addresses of the machine is assumed at `host`.
    pub fn new(program: u32, version: u32, netid: Netid, host: IpAddr) -> Self {
        let questions = match netid {
            Netid::Tcp => TCP,
            Netid::Tcp6 => TCP6,
            Netid::Rdma | Netid::Rdma6 => RDMA,
        };
        Self { program, version, netid, host, questions: questions.iter(), asked: None }
    }

    /// Returns the first question.
    pub fn start(&mut self) -> Result<Progress, LookupError> {
        self.ask()
    }

    /// Returns the next question, after rpcbind refused the last: for example because it doesn't know that version.
    pub fn handle_refusal(&mut self) -> Result<Progress, LookupError> {
        self.ask()
    }

    /// Takes rpcbind's answer to the last question; returns the next step.
    pub fn handle_results(&mut self, results: Decoder) -> Result<Progress, LookupError> {
        match self.answer(results)? {
            Some(address) => Ok(Progress::Found(address)),
            None => self.ask(),
        }
    }

    fn ask(&mut self) -> Result<Progress, LookupError> {
        self.asked = self.questions.next().copied();
        let Some(question) = self.asked else {
            let Self { program, version, netid, .. } = *self;
            return Err(LookupError::NotRegistered { program, version, netid });
        };
        let service = Rpcb {
            program: self.program,
            version: self.version,
            netid: self.netid.as_str().into(),
            ..Rpcb::default()
        };
        Ok(match question {
            Question::GetAddr(rpcbind) => Request::getaddr(rpcbind, &service)?.into(),
            Question::GetAddrList => Request::getaddrlist(&service)?.into(),
            Question::Dump(rpcbind) => Request::dump(rpcbind)?.into(),
            Question::GetPort => Request::getport(self.program, self.version, IPPROTO_TCP)?.into(),
        })
    }

    /// Returns the address in an answer, if there is one that can be used.
    fn answer(&self, results: Decoder) -> Result<Option<SocketAddr>, DecodeError> {
        let found = match self.asked {
            None => None,
            Some(Question::GetAddr(_)) => {
                let AddressText(address) = results.decode_all()?;
                self.usable(&address)
            }
            Some(Question::GetAddrList) => {
                let RpcbEntryList(entries) = results.decode_all()?;
                let mut ours = entries.iter().filter(|entry| entry.netid == *self.netid.as_str());
                ours.find_map(|entry| self.usable(&entry.address))
            }
            Some(Question::Dump(_)) => {
                let RpcbList(entries) = results.decode_all()?;
                let mut ours = entries.iter().filter(|entry| {
                    entry.netid == *self.netid.as_str()
                        && (entry.program, entry.version) == (self.program, self.version)
                });
                ours.find_map(|entry| self.usable(&entry.address))
            }
            Some(Question::GetPort) => {
                let port = u16::try_from(results.decode_all::<u32>()?).unwrap_or(0);
                Some(SocketAddr::new(self.host, port))
            }
        };
        Ok(found.filter(|address| address.port() != 0))
    }

    /// Returns an address of the right family, with a wildcard replaced by the machine that was asked.
    fn usable(&self, text: &Text) -> Option<SocketAddr> {
        let UniversalAddress(mut address) = text.to_str()?.parse().ok()?;
        if address.ip().is_unspecified() {
            address.set_ip(self.host);
        }
        (address.is_ipv6() == self.netid.is_ipv6()).then_some(address)
    }
}

impl<R> From<Request<R>> for Progress {
    fn from(request: Request<R>) -> Self {
        let Request { version, procedure, arguments, .. } = request;
        Self::Call { version, procedure, arguments }
    }
}

#[cfg(test)]
mod tests;
