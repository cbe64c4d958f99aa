//! The numbers of the operations on transmissions, which the owner of a side may choose.

use thiserror::Error;

use crate::settings::versions::Versions;
use crate::wire::two::Profile;
use crate::wire::two::transmission::{OperationBase, OperationType};

/// Reasons why the operations on transmissions cannot have these numbers.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationNumbers {
    /// xcharext-02 §4: in P1 the operations on characteristics have the numbers 1 to 4.
    #[error(
        "the operations on transmissions cannot begin with {first} in P1, where those on characteristics do"
    )]
    Taken {
        /// The first of the numbers.
        first: u32,
    },
    /// Version One and P3 have no such operations.
    #[error("only P1 and P2 of Version Two have operations on transmissions")]
    None,
}

impl Versions {
    /// Returns these versions with other numbers for the operations on transmissions; both sides need equal ones.
    ///
    /// # Errors
    /// [`OperationNumbers`]: other operations have these numbers, or no version has operations on transmissions.
    pub const fn with_operations(self, operations: OperationBase) -> Result<Self, OperationNumbers> {
        match (self.two, operations) {
            (None | Some(Profile::P3), _) => Err(OperationNumbers::None),
            (Some(Profile::P1), OperationBase::Tables) => {
                Err(OperationNumbers::Taken { first: OperationType::Request.number(operations) })
            }
            _ => Ok(Self { operations, ..self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_speaks_what_it_was_told() {
        let numbers =
            |versions: Versions| versions.codecs().map(|codec| codec.rules().version).collect::<Vec<_>>();
        assert_eq!((numbers(Versions::ONE), Versions::ONE.range()), (vec![1], (1, 1)));
        for profile in [Profile::P1, Profile::P2, Profile::P3] {
            let (two, both) = (Versions::two(profile), Versions::both(profile));
            assert_eq!((numbers(two), two.range(), two.least_receive()), (vec![2], (2, 2), 4096));
            assert_eq!((numbers(both), both.range()), (vec![2, 1], (1, 2)));
            assert_eq!(both.highest().rules().two.map(|two| two.profile), Some(profile));
            assert!(two.codec(1).is_none() && both.codec(1).is_some() && both.codec(3).is_none());
        }
    }
}
