use std::time::{SystemTime, UNIX_EPOCH};

/// Crockford's alphabet, without letters that look like digits.
const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A ULID: 26 letters that sort by creation time and are unique.
///
/// The time is for people who read logs; nothing depends on it.
pub(super) fn ulid() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut random = [0; 10];
    // Without random bytes no claim can be made either, and that is an error.
    let _ = getrandom::fill(&mut random);
    spell(since.as_millis() as u64, random)
}

fn spell(millis: u64, random: [u8; 10]) -> String {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&random);
    let bits = u128::from_be_bytes(bytes);
    let letter = |at: u32| char::from(LETTERS[(bits >> (5 * at)) as usize & 31]);
    (0..26).rev().map(letter).collect()
}

/// A number below `most`, for random rests.
pub(super) fn any_below(most: u64) -> u64 {
    let mut random = [0; 8];
    let _ = getrandom::fill(&mut random);
    u64::from_le_bytes(random) % most.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spelled_as_a_ulid_is() {
        assert_eq!(spell(0, [0; 10]), "0".repeat(26));
        assert_eq!(spell((1 << 48) - 1, [255; 10]), format!("7{}", "Z".repeat(25)));
        // The time in the example of the specification.
        assert!(spell(1_469_918_176_385, [0; 10]).starts_with("01ARYZ6S41"));
    }

    #[test]
    fn later_ones_come_after_and_all_differ() {
        assert!(spell(1, [255; 10]) < spell(2, [0; 10]));
        assert_ne!(ulid(), ulid());
        assert_eq!(ulid().len(), 26);
    }
}
