//! [`Companion`]: a value that lives as long as some memory, and ends before it. [`Registrar`]: the maker of such values for
//! all memory of a domain.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A value that a provider keeps beside memory, such as a registration. It is dropped just before the memory is freed.
pub trait Companion: Send + Sync {
    /// Returns whether the value has lost its purpose. Such values are dropped when others are added.
    fn is_stale(&self) -> bool {
        false
    }

    /// Returns the number of the [`Registrar`] that made the value, if one did.
    fn registrar(&self) -> Option<usize> {
        None
    }
}

/// A provider that wants to know all memory of a domain before it is used: an adapter registers it.
pub trait Registrar: Send + Sync {
    /// Returns a number that no other registrar has while this one lives.
    fn number(&self) -> usize;

    /// Makes the companion of memory at these addresses; `None` if that fails, or is not needed.
    fn companion(&self, range: Range<usize>) -> Option<Box<dyn Companion>>;
}

/// Registrars of a domain.
#[derive(Clone, Default)]
pub(crate) struct Registrars {
    all: Arc<[Weak<dyn Registrar>]>,
}

impl Registrars {
    /// Adds a registrar, unless it is there.
    pub(crate) fn add(&mut self, registrar: &Arc<dyn Registrar>) {
        let known = |known: &Weak<dyn Registrar>| {
            known.upgrade().is_some_and(|known| known.number() == registrar.number())
        };
        if !self.all.iter().any(known) {
            let living = self.all.iter().filter(|known| known.strong_count() > 0).cloned();
            self.all = living.chain([Arc::downgrade(registrar)]).collect();
        }
    }

    /// Adds the companions that memory at these addresses lacks.
    pub(crate) fn complete(&self, companions: &mut Companions, range: &Range<usize>) {
        for registrar in self.all.iter().filter_map(Weak::upgrade) {
            let number = Some(registrar.number());
            if companions.values.iter().all(|companion| companion.registrar() != number)
                && let Some(companion) = registrar.companion(range.clone())
            {
                companions.add(companion);
            }
        }
    }
}

impl fmt::Debug for Registrars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrars").field("count", &self.all.len()).finish()
    }
}

/// The companions of some memory.
#[derive(Default)]
pub(crate) struct Companions {
    values: Vec<Box<dyn Companion>>,
}

impl Companions {
    /// Adds a companion.
    pub(crate) fn add(&mut self, companion: Box<dyn Companion>) {
        self.values.retain(|value| !value.is_stale());
        self.values.push(companion);
    }
}

impl fmt::Debug for Companions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Companions").field("count", &self.values.len()).finish()
    }
}
