//! RDMA devices of the guest on which cases run our programs.
//!
//! The provider over libibverbs needs a device of the kernel, which only the guest has. A case on a fabric therefore runs
//! our server, our client and the kernel's peers all in the guest. They meet at the guest's own address.

/// A device of the guest, and the way in which our provider opens windows on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// RoCE version 2 in software, with memory windows.
    RxeWindows,
    /// The same device; the provider registers memory for each window.
    RxeRegistrations,
    /// iWARP in software, which has no memory windows.
    Siw,
}

impl Fabric {
    /// Returns the argument of `interop/guest/fabric.sh`.
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::RxeWindows | Self::RxeRegistrations => "rxe",
            Self::Siw => "siw",
        }
    }

    /// Returns the name of the device.
    pub(crate) const fn device(self) -> &'static str {
        match self {
            Self::RxeWindows | Self::RxeRegistrations => "rxe0",
            Self::Siw => "siw0",
        }
    }

    /// Returns the options with which our command uses the device.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            Self::RxeWindows | Self::Siw => &["--provider", "verbs"],
            Self::RxeRegistrations => &["--provider", "verbs", "--no-windows"],
        }
    }

    /// Returns whether the peer may invalidate windows that our client opens.
    pub(crate) const fn has_windows(self) -> bool {
        matches!(self, Self::RxeWindows)
    }
}
