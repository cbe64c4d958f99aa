//! Calls as bytes with record marking, and sockets at any address of the [network](crate::network).

use std::net::SocketAddr;

use rpcrdma_nfs::mount::{DirPath, MOUNT_PROGRAM, MOUNT_VERSION, MountProcedure};
use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION, NfsCall};
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth};
use rpcrdma_xdr::{Encode, Stream, encode};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::Failure;
use crate::network::address;

/// Longest reply that this program reads, in bytes.
pub(crate) const REPLY_MAX: usize = 4 << 20;

/// A small TCP segment, in bytes.
const SMALL_SEGMENT: u32 = 536;

/// Connects from 192.0.2.`last`.
pub(crate) async fn connect(last: u8, to: SocketAddr) -> Result<TcpStream, Failure> {
    open(last, to, None).await
}

/// Connects from 192.0.2.`last` with a small receive buffer, so that unread replies stay with the server.
pub(crate) async fn connect_narrow(last: u8, to: SocketAddr) -> Result<TcpStream, Failure> {
    open(last, to, Some(4096)).await
}

async fn open(last: u8, to: SocketAddr, receive: Option<u32>) -> Result<TcpStream, Failure> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = receive {
        socket.set_recv_buffer_size(bytes)?;
        // Small segments make the server's system buffer few bytes.
        SockRef::from(&socket).set_tcp_mss(SMALL_SEGMENT)?;
    }
    socket.bind((address(last), 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn record(header: CallHeader, arguments: Stream) -> Result<Vec<u8>, Failure> {
    let (message, _) = header.with_arguments(arguments)?.flatten();
    let mut bytes = (0x8000_0000 | u32::try_from(message.len())?).to_be_bytes().to_vec();
    bytes.extend_from_slice(&message);
    Ok(bytes)
}

/// Returns a NULL call of NFS as a record.
pub(crate) fn null(xid: u32) -> Result<Vec<u8>, Failure> {
    record(header(xid, NFS_PROGRAM, NFS_VERSION, 0), Stream::default())
}

fn header(xid: u32, program: u32, version: u32, procedure: u32) -> CallHeader {
    CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    }
}

/// Returns a call of NFS as a record.
pub(crate) fn nfs<C: NfsCall + Encode>(xid: u32, arguments: &C) -> Result<Vec<u8>, Failure> {
    let header = header(xid, NFS_PROGRAM, NFS_VERSION, C::PROCEDURE.number());
    record(header, encode(arguments)?)
}

/// Returns a MNT call as a record.
pub(crate) fn mnt(xid: u32, path: &[u8]) -> Result<Vec<u8>, Failure> {
    let header = header(xid, MOUNT_PROGRAM, MOUNT_VERSION, MountProcedure::Mnt.number());
    record(header, encode(&DirPath::new(path))?)
}

/// Returns a call of MOUNT without arguments as a record.
pub(crate) fn mount(xid: u32, procedure: MountProcedure) -> Result<Vec<u8>, Failure> {
    record(header(xid, MOUNT_PROGRAM, MOUNT_VERSION, procedure.number()), Stream::default())
}
