//! The link between host and guest: its MTU, and what becomes of the packets that the guest sends.

/// A state of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// MTU of both ends, in octets.
    pub(crate) mtu: u16,
    /// Options of netem in the guest; empty: nothing is delayed or lost.
    pub(crate) disturbance: &'static [&'static str],
}

impl Link {
    /// The state in which the guest starts.
    pub(crate) const PLAIN: Self = Self::of_mtu(1500);

    /// A link that delays all packets of the guest, loses one of a hundred and lets others overtake.
    pub(crate) const LOSSY: Self =
        Self { mtu: 1500, disturbance: &["delay", "1ms", "500us", "loss", "1%", "reorder", "5%", "25%"] };

    /// Returns a link without disturbance.
    pub(crate) const fn of_mtu(mtu: u16) -> Self {
        Self { mtu, disturbance: &[] }
    }
}
