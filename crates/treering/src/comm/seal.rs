//! Messages with a checksum: xxh3 with 64 bits.
//!
//! Law: what [`unsealed`] returns is what was sealed (except for a hash collision, odds 2^−64).

use crate::error::{Error, Result};
use crate::merkle::checksum;

/// Appends its checksum to a message.
pub(crate) fn seal(message: &mut Vec<u8>) {
    message.extend(checksum(message).to_le_bytes());
}

/// A message without its checksum; `None` if it came damaged.
pub(crate) fn unsealed(message: &[u8]) -> Option<&[u8]> {
    let (body, sum) = message.split_last_chunk::<8>()?;
    (checksum(body) == u64::from_le_bytes(*sum)).then_some(body)
}

/// A message without its checksum; an error if it came damaged.
pub(crate) fn opened(message: &[u8]) -> Result<&[u8]> {
    unsealed(message).ok_or_else(|| Error::damaged("a message of another rank came damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_message_comes_back_and_a_damaged_one_does_not() {
        for len in [0, 1, 300] {
            let body = vec![5u8; len];
            let mut message = body.clone();
            seal(&mut message);
            assert_eq!(unsealed(&message), Some(&body[..]));
            for at in 0..message.len() {
                let mut damaged = message.clone();
                damaged[at] ^= 0x20;
                assert_eq!(unsealed(&damaged), None);
                assert_eq!(unsealed(&message[..at]), None);
            }
        }
    }
}
