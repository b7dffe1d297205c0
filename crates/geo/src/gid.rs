//! The name under which a node keeps a prepared transaction.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// What every name of ours begins with.
const START: &str = "txn/";

/// The name of one participant of a distributed transaction. All participants of a transaction
/// have the coordinator, the incarnation and the sequence in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gid {
    /// The UUID of the coordinator's database.
    pub coordinator: u128,
    /// How often the coordinator has started. It never goes back, so no name is used twice.
    pub incarnation: u64,
    /// The number of the transaction within the incarnation, from 1 on.
    pub sequence: u64,
    /// The object identifier of the user mapping. It tells the node and the remote user.
    pub mapping: u32,
}

impl Gid {
    /// The name that a text tells. None unless it is exactly what `Display` prints.
    pub fn parse(text: &str) -> Option<Gid> {
        let mut parts = text.strip_prefix(START)?.split('/');
        let uuid = parts.next()?.replace('-', "");
        let gid = Gid {
            coordinator: u128::from_str_radix(&uuid, 16).ok()?,
            incarnation: u64::from_str_radix(parts.next()?, 16).ok()?,
            sequence: parts.next()?.parse().ok()?,
            mapping: parts.next()?.parse().ok()?,
        };
        // Rejects signs, upper case, leading zeros, misplaced hyphens and further parts.
        (gid.to_string() == text).then_some(gid)
    }

    /// What all names of this coordinator begin with, for a search in `pg_prepared_xacts`.
    pub fn prefix(coordinator: u128) -> String {
        format!("{START}{}/", Uuid(coordinator))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gid {
            coordinator,
            incarnation,
            sequence,
            mapping,
        } = *self;
        let uuid = Uuid(coordinator);
        write!(f, "{START}{uuid}/{incarnation:016x}/{sequence}/{mapping}")
    }
}

/// The text is no name of a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidGid;

impl fmt::Display for InvalidGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid name of a distributed transaction")
    }
}

impl Error for InvalidGid {}

impl FromStr for Gid {
    type Err = InvalidGid;

    fn from_str(text: &str) -> Result<Gid, InvalidGid> {
        Gid::parse(text).ok_or(InvalidGid)
    }
}

/// A UUID as PostgreSQL prints it.
struct Uuid(u128);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
        f.write_str(&groups.join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// PostgreSQL's GIDSIZE, with the terminating zero.
    const GIDSIZE: usize = 200;
    const UUID: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;

    const EXAMPLE: Gid = Gid {
        coordinator: UUID,
        incarnation: 31,
        sequence: 42,
        mapping: 16385,
    };

    #[test]
    fn a_name_is_printed_as_documented() {
        let text = "txn/12345678-9abc-def0-1122-334455667788/000000000000001f/42/16385";
        assert_eq!(EXAMPLE.to_string(), text);
        assert_eq!(text.parse(), Ok(EXAMPLE));
        assert!(text.starts_with(&Gid::prefix(UUID)));
    }

    #[test]
    fn the_longest_name_fits() {
        let longest = Gid {
            coordinator: u128::MAX,
            incarnation: u64::MAX,
            sequence: u64::MAX,
            mapping: u32::MAX,
        };
        let text = longest.to_string();
        assert!(text.len() < GIDSIZE, "{} bytes", text.len());
        assert_eq!(Gid::parse(&text), Some(longest));
    }

    #[test]
    fn only_exact_names_are_parsed() {
        let text = EXAMPLE.to_string();
        let wrong = [
            String::new(),
            "txn/".to_owned(),
            text.to_uppercase(),
            format!(" {text}"),
            format!("{text} "),
            format!("{text}/"),
            format!("{text}/1"),
            text.replace("1234", "12-34"),
            text.replacen('-', "", 1),
            text.replace("/42/", "/+42/"),
            text.replace("/42/", "/042/"),
            text.replace("/42/", "/-42/"),
            text.replace("/42/", "//"),
            text.replace("000000000000001f", "1f"),
            text.replace("001f", "001F"),
            text.replace("0000000000", "+000000000"),
            text.replace("16385", "4294967296"),
            text.replace("txn", "txm"),
        ];
        for wrong in wrong {
            assert_eq!(wrong.parse::<Gid>(), Err(InvalidGid), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_name_is_parsed_to_itself(
            coordinator: u128, incarnation: u64, sequence: u64, mapping: u32
        ) {
            let gid = Gid { coordinator, incarnation, sequence, mapping };
            prop_assert_eq!(Gid::parse(&gid.to_string()), Some(gid));
        }

        #[test]
        fn a_parsed_text_is_what_would_be_printed(
            text in "txn/[0-9a-f-]{30,38}/[0-9a-fA-F+]{15,17}/[0-9+-]{1,21}/[0-9+-]{1,11}"
        ) {
            if let Some(gid) = Gid::parse(&text) {
                prop_assert_eq!(gid.to_string(), text);
            }
        }
    }
}
