//! Software iWARP (MPA, DDP, RDMAP over TCP) provider.

pub mod wire;
