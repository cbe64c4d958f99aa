//! Reserving windows: the registration under a window, and the window of the adapter.

use std::io;

use bytes::Bytes;
use rpcrdma_verbs::{
    Capabilities, ProtectionDomain, RemoteSegment, WindowError, WindowErrorKind, WindowMemory, Windows,
};

use super::IbverbsQueuePair;
use super::windows::{Backing, Spare};
use crate::ffi::value::{ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use crate::memory::{address_range, explain};

impl Windows for IbverbsQueuePair {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    fn reserve_window(&mut self, mut memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        let kind = if !self.takes_work() {
            WindowErrorKind::Disconnected
        } else if self.windows.is_full() {
            WindowErrorKind::Exhausted { limit: self.windows.limit }
        } else if let Ok(length) = u32::try_from(memory.len()) {
            match self.back(&mut memory) {
                Ok(Some(backing)) => {
                    let (key, address) = self.windows.add(memory, backing);
                    return Ok(RemoteSegment { key, address, length });
                }
                Ok(None) => WindowErrorKind::Exhausted { limit: self.windows.made() },
                Err(error) => {
                    tracing::warn!("{}", explain(&error, memory.len()));
                    let os_error = error.raw_os_error().unwrap_or(libc::ENOMEM);
                    WindowErrorKind::Registration { len: memory.len(), os_error }
                }
            }
        } else {
            WindowErrorKind::TooLong { len: memory.len() }
        };
        Err(WindowError { kind, memory })
    }
}

impl IbverbsQueuePair {
    /// Registers memory for a window, if it has no registration, and takes a window of the adapter.
    fn back(&mut self, memory: &mut WindowMemory) -> io::Result<Option<Backing>> {
        let Some(hardware) = &mut self.hardware else { return Ok(None) };
        let (remote, local) = match memory {
            WindowMemory::Read(_) => (ACCESS_REMOTE_READ, 0),
            WindowMemory::Write(_) => (ACCESS_REMOTE_WRITE, ACCESS_LOCAL_WRITE),
        };
        let mut range = match memory {
            WindowMemory::Read(bytes) => address_range(bytes),
            WindowMemory::Write(buffer) => address_range(buffer),
        };
        // A window without memory exposes an octet that nobody uses, so that its key is like others.
        let empty = range.is_empty();
        if empty {
            let Some(nothing) = &self.nothing else { return Ok(None) };
            range = address_range(nothing);
        }
        if !self.mode.windows {
            let region = hardware.memory.register(range, remote | local)?;
            return Ok(Some(Backing::Registration(region)));
        }
        let known = match (&mut *memory, &mut self.nothing) {
            (_, Some(nothing)) if empty => hardware.memory.keep(nothing)?,
            (WindowMemory::Read(bytes), _) => hardware.memory.find(bytes),
            (WindowMemory::Write(buffer), _) => hardware.memory.keep(buffer)?,
        };
        let len = range.len() as u64;
        let (place, region) = match known {
            Some(place) => (place, None),
            None => {
                let region = match hardware.memory.register(range, local | ACCESS_MW_BIND) {
                    // The kernel wants memory under a window to be writable, whatever the window allows.
                    Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                        let WindowMemory::Read(bytes) = memory else { return Err(error) };
                        self.counters.message_bytes_copied += len;
                        *bytes = Bytes::from(bytes.to_vec());
                        hardware.memory.register(address_range(bytes), ACCESS_MW_BIND)?
                    }
                    result => result?,
                };
                (region.beginning(), Some(region))
            }
        };
        let Some(spare) = self.spare_window() else { return Ok(None) };
        Ok(Some(Backing::Window { spare, place, len, region }))
    }

    /// Returns a window of the adapter that is free, a new one while few exist.
    fn spare_window(&mut self) -> Option<Spare> {
        if let Some(spare) = self.windows.take_spare() {
            return Some(spare);
        }
        match self.hardware.as_mut()?.new_window() {
            Ok((window, key)) => {
                self.windows.made_one();
                Some(Spare::new(window, key))
            }
            Err(error) => {
                tracing::debug!(%error, made = self.windows.made(), "the adapter has no more windows");
                self.windows.any_spare()
            }
        }
    }
}
