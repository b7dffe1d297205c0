//! What makes a row the same row across its versions: database, table and the bytes of its key.

use std::hash::Hasher;

/// Bytes of key image kept per row. A longer image is kept as its beginning, its length and a
/// 128-bit digest.
pub const KEY_BYTES: usize = 64;

/// Bytes kept of the key's text for the views.
pub const LABEL_BYTES: usize = 64;

/// Columns of a key whose numbers are kept.
pub const KEY_COLUMNS: usize = 8;

const DIGEST_AT: usize = KEY_BYTES - 24;

/// The identity of a row. Compared exactly; the hash only finds the bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub database: u32,
    pub relation: u32,
    length: u32,
    key: [u8; KEY_BYTES],
    hash: u64,
}

impl Identity {
    /// The identity of the row of `relation` whose key columns have the image `key`.
    pub fn new(database: u32, relation: u32, key: &[u8]) -> Self {
        let mut image = [0; KEY_BYTES];
        if key.len() <= KEY_BYTES {
            image[..key.len()].copy_from_slice(key);
        } else {
            image[..DIGEST_AT].copy_from_slice(&key[..DIGEST_AT]);
            image[DIGEST_AT..].copy_from_slice(&Self::digest(key));
        }
        let length = key.len().min(KEY_BYTES + 1) as u32;
        let stored = key.len().min(KEY_BYTES);
        Identity {
            database,
            relation,
            length,
            key: image,
            hash: digest(seed(database, relation), &image[..stored]),
        }
    }

    /// `new` for the image of a key of one number.
    #[inline]
    pub fn of_number(database: u32, relation: u32, key: i64) -> Self {
        let bytes = key.to_le_bytes();
        let mut image = [0; KEY_BYTES];
        image[..bytes.len()].copy_from_slice(&bytes);
        let mut state = Fold::new(seed(database, relation));
        state.write_u64(key as u64);
        state.write_u64(bytes.len() as u64);
        Identity {
            database,
            relation,
            length: bytes.len() as u32,
            key: image,
            hash: state.finish(),
        }
    }

    /// 24 bytes that stand for a long value: its length and a 128-bit digest.
    pub fn digest(bytes: &[u8]) -> [u8; 24] {
        let mut out = [0; 24];
        out[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        out[8..16].copy_from_slice(&digest(1, bytes).to_le_bytes());
        out[16..].copy_from_slice(&digest(2, bytes).to_le_bytes());
        out
    }

    /// A well mixed hash of the whole identity.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The key's image as eight words, followed by its length.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let (chunks, _) = self.key.as_chunks::<8>();
        chunks
            .iter()
            .map(|c| u64::from_le_bytes(*c))
            .chain([u64::from(self.length)])
    }
}

/// A hash of `bytes` that depends on `seed`: the multiply-and-fold of wyhash, whose quality is
/// enough for buckets, and two of which with different seeds tell long keys apart.
fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = Fold::new(seed);
    state.write(bytes);
    state.write_u64(bytes.len() as u64);
    state.finish()
}

fn seed(database: u32, relation: u32) -> u64 {
    (u64::from(database) << 32) | u64::from(relation)
}

struct Fold(u64);

impl Fold {
    fn new(seed: u64) -> Self {
        Fold(seed ^ 0x9e37_79b9_7f4a_7c15)
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.write_u64(u64::from_le_bytes(*chunk));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(last));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value)
            * u128::from(0xa076_1d64_78bd_642f_u64 ^ value.rotate_left(32) | 1);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.0.rotate_left(23);
    }

    fn finish(&self) -> u64 {
        let mut x = self.0;
        x ^= x >> 32;
        x = x.wrapping_mul(0xe703_7ed1_a0b4_28db);
        x ^ (x >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_length_differ() {
        assert_ne!(Identity::new(1, 2, b"ab"), Identity::new(1, 2, b"ab\0"));
        assert_ne!(
            Identity::new(1, 2, b"ab").hash(),
            Identity::new(1, 3, b"ab").hash()
        );
    }

    #[test]
    fn a_number_is_its_bytes() {
        for key in [0_i64, 1, -1, 4711, i64::MIN, i64::MAX] {
            let by_bytes = Identity::new(5, 16384, &key.to_le_bytes());
            assert_eq!(Identity::of_number(5, 16384, key), by_bytes);
        }
    }

    #[test]
    fn long_keys_that_share_a_beginning_differ() {
        let mut a = [7_u8; 400];
        let before = Identity::new(1, 2, &a);
        a[399] = 8;
        assert_ne!(before, Identity::new(1, 2, &a));
        assert_ne!(before, Identity::new(1, 2, &a[..399]));
    }

    #[test]
    fn small_integers_spread_over_buckets() {
        let mut used = [0_u32; 64];
        for key in 0..6400_i64 {
            used[(Identity::new(5, 16384, &key.to_le_bytes()).hash() % 64) as usize] += 1;
        }
        assert!(used.iter().all(|&n| (50..200).contains(&n)), "{used:?}");
    }
}
