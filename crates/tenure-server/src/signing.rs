//! What the server signs: tickets, and claims made from an `Idempotency-Key`. Servers of the same locks share a key,
//! so that each accepts what another has signed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;
use tenure::engine::{ClaimId, Name, Space, Ticket};

/// How many bytes of a signature travel: forging one takes 2^96 guesses at the server.
const SIGNED: usize = 12;

/// The key of a server.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key that only this process knows: tickets then mean nothing to other servers, or after a restart.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> io::Result<Key> {
        Ok(Key::from_bytes(&random::<32>()?))
    }

    /// The key in this file. If there is none, makes one that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be read or made, or is not a key.
    pub fn from_file(path: &Path) -> io::Result<Key> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Key::make(path),
            read => match from_hex::<32>(read?.trim()) {
                Some(bytes) => Ok(Key::from_bytes(&bytes)),
                None => Err(io::Error::other("a key is 64 hex digits")),
            },
        }
    }

    fn make(path: &Path) -> io::Result<Key> {
        let bytes = random::<32>()?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        // Written beside it and then linked, so that if several servers start at once, one of them makes the key.
        let beside = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        writeln!(file, "{}", hex(&bytes))?;
        file.sync_all()?;
        let linked = fs::hard_link(&beside, path);
        let _ = fs::remove_file(&beside);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Key::from_file(path),
            made => made.map(|()| Key::from_bytes(&bytes)),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    fn sign(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // With its length, so that different lists of parts never look the same.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign()
    }

    /// The ticket of a claim, as its client may keep it.
    pub(crate) fn ticket(&self, name: &Name, id: &ClaimId, ticket: Ticket) -> String {
        let number = ticket.get().to_le_bytes();
        let tag = self.sign(&ticket_parts(name, &id.to_bytes(), &number));
        format!("{}{}", hex(&number), hex(tag.as_ref().get(..SIGNED).unwrap_or_default()))
    }

    /// Reads a ticket that a server with this key has made for this claim.
    pub(crate) fn read_ticket(&self, name: &Name, id: &ClaimId, text: &str) -> Option<Ticket> {
        let bytes = from_hex::<{ 8 + SIGNED }>(text)?;
        let (number, signed) = bytes.split_first_chunk::<8>()?;
        let tag = self.sign(&ticket_parts(name, &id.to_bytes(), number));
        let is_same = tag.as_ref().get(..SIGNED)?.ct_eq(signed);
        bool::from(is_same).then(|| Ticket::new(u64::from_le_bytes(*number)))
    }

    /// The claim that an `Idempotency-Key` of a client stands for.
    pub(crate) fn claim(&self, client: &str, name: &Name, key: &str) -> ClaimId {
        let parts = [
            b"claim".as_slice(),
            client.as_bytes(),
            &[space(name.space())],
            name.as_str().as_bytes(),
            key.as_bytes(),
        ];
        let tag = self.sign(&parts);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(tag.as_ref().get(..16).unwrap_or_default());
        ClaimId::from_bytes(bytes)
    }

    /// A short name for something that reveals nothing about it.
    pub(crate) fn fingerprint(&self, parts: &[&[u8]]) -> String {
        hex(self.sign(parts).as_ref().get(..8).unwrap_or_default())
    }
}

fn ticket_parts<'a>(name: &'a Name, id: &'a [u8; 16], number: &'a [u8; 8]) -> [&'a [u8]; 5] {
    let space: &[u8] = match name.space() {
        Space::Election => b"e",
        Space::Once => b"o",
        _ => b"l",
    };
    [b"ticket", space, name.as_str().as_bytes(), id, number]
}

fn space(space: Space) -> u8 {
    match space {
        Space::Election => b'e',
        Space::Once => b'o',
        _ => b'l',
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| io::Error::other("the system has no random numbers"))
}

/// A token that nobody can guess: 256 bits, in hex.
///
/// # Errors
/// If the system has no random numbers.
pub fn new_token() -> io::Result<String> {
    Ok(hex(&random::<32>()?))
}

/// These bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Exactly `N` bytes from their hex digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |at: usize| char::from(pair[at]).to_digit(16).map(|value| value as u8);
        *byte = value(0)? << 4 | value(1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_its_claim_and_no_other() {
        let key = Key::random().unwrap();
        let name = |text| Name::new(Space::Lock, text).unwrap();
        let (id, other) = (ClaimId::from_bytes([7; 16]), ClaimId::from_bytes([8; 16]));
        let text = key.ticket(&name("x"), &id, Ticket::new(42));
        assert_eq!(key.read_ticket(&name("x"), &id, &text), Some(Ticket::new(42)));
        assert_eq!(key.read_ticket(&name("y"), &id, &text), None);
        assert_eq!(key.read_ticket(&name("x"), &other, &text), None);
        let election = Name::new(Space::Election, "x").unwrap();
        assert_eq!(key.read_ticket(&election, &id, &text), None);
        assert_eq!(Key::random().unwrap().read_ticket(&name("x"), &id, &text), None);
        let mut lower = text.clone().into_bytes();
        lower[0] = b'0';
        let lower = String::from_utf8(lower).unwrap();
        assert_eq!(key.read_ticket(&name("x"), &id, &lower), None, "an earlier place");
        for bad in ["", "zz", &text[..38], "é", &format!("{text}00")] {
            assert_eq!(key.read_ticket(&name("x"), &id, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_idempotency_key_is_separate_for_each_client_and_name() {
        let key = Key::random().unwrap();
        let name = |text| Name::new(Space::Lock, text).unwrap();
        let id = key.claim("shop", &name("x"), "k");
        assert_eq!(key.claim("shop", &name("x"), "k"), id);
        for other in [key.claim("shop", &name("x"), "l"), key.claim("pay", &name("x"), "k")] {
            assert_ne!(other, id);
        }
        assert_ne!(key.claim("shop", &name("y"), "k"), id);
        assert_ne!(key.claim("sho", &name("px"), "k"), id);
    }

    #[test]
    fn a_key_file_is_made_once_and_read_by_all() {
        let folder = std::env::temp_dir().join(format!("tenure-key-{}", std::process::id()));
        let path = folder.join("server.key");
        let (one, two) = (Key::from_file(&path).unwrap(), Key::from_file(&path).unwrap());
        let (name, id) = (Name::new(Space::Lock, "x").unwrap(), ClaimId::from_bytes([1; 16]));
        let ticket = one.ticket(&name, &id, Ticket::new(5));
        assert_eq!(two.read_ticket(&name, &id, &ticket), Some(Ticket::new(5)));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0);
        fs::write(&path, "short").unwrap();
        assert!(Key::from_file(&path).is_err());
        let _ = fs::remove_dir_all(folder);
    }
}
