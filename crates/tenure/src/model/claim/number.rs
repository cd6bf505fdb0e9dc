//! The numbers that an engine gives out.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A number that rises with every grant of a name. Safe to log, and below 2^53.
///
/// Pass it to the resource that the hold protects, and have that refuse every number lower than the highest it
/// has seen. Then a holder that was paused and comes back too late can do no harm.
///
/// It converts from and to `u64`, and from and to decimal digits. With the feature `serde` it is serialized as a
/// number.
///
/// ```
/// use tenure::Fence;
///
/// let fence = Fence::from(42);
/// assert_eq!(u64::from(fence), 42);
/// assert_eq!(fence.to_string().parse(), Ok(fence));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Fence(u64);

/// The arrival number of a claim, which it keeps when it reconnects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(u64);

macro_rules! plain_number {
    ($type:ident) => {
        impl $type {
            /// Takes any number. Unlike `From`, this is `const`.
            pub const fn new(number: u64) -> $type {
                $type(number)
            }

            /// The number. Unlike `From`, this is `const`.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl From<u64> for $type {
            fn from(number: u64) -> $type {
                $type(number)
            }
        }

        impl From<$type> for u64 {
            fn from(number: $type) -> u64 {
                number.0
            }
        }

        /// Parses the format of `Display`.
        impl FromStr for $type {
            type Err = ParseIntError;

            fn from_str(digits: &str) -> Result<$type, ParseIntError> {
                digits.parse().map($type)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.0)
            }
        }
    };
}
plain_number!(Fence);
plain_number!(Ticket);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 7, (1 << 53) - 1, u64::MAX] {
            assert_eq!(Fence::from(number).to_string().parse(), Ok(Fence::new(number)));
            assert_eq!(u64::from(Ticket::from(number)), number);
        }
        for wrong in ["", "-1", " 1", "0x1", "18446744073709551616"] {
            assert!(wrong.parse::<Fence>().is_err(), "{wrong:?}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_fence_is_serialized_as_a_number() {
        let fence = Fence::new((1 << 53) - 1);
        let json = serde_json::to_string(&fence).unwrap();
        assert_eq!(json, "9007199254740991");
        assert_eq!(serde_json::from_str::<Fence>(&json).unwrap(), fence);
    }
}
