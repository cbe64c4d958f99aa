//! Derive macro for XDR types with limits and DDP-eligibility marks
