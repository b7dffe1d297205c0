//! The name of a transaction at the nodes, from its first statement there on: `application_name`
//! within the transaction.

use std::fmt;

/// What every name begins with.
const START: &str = "txn/";

/// A transaction over several servers. A `Gid` names one of its participants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    /// The UUID of the coordinator's database.
    pub coordinator: u128,
    /// The coordinator's incarnation when the transaction began.
    pub incarnation: u64,
    /// The number of the transaction, as in its gid.
    pub sequence: u64,
}

/// What the nodes are told of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// Which transaction it is.
    pub id: Id,
    /// When it began, in milliseconds of the coordinator's clock.
    pub begun: u64,
}

impl Name {
    /// The name that a text tells. None unless it is what `Display` prints, perhaps cut off behind
    /// 63 bytes: then only `begun` may be wrong, which nothing but the choice of a victim uses.
    pub fn parse(text: &str) -> Option<Name> {
        let mut parts = text.strip_prefix(START)?.split('/');
        let mut next = || parts.next();
        let name = Name {
            id: Id {
                coordinator: u128::from_str_radix(next()?, 16).ok()?,
                incarnation: u64::from_str_radix(next()?, 16).ok()?,
                sequence: u64::from_str_radix(next()?, 16).ok()?,
            },
            begun: u64::from_str_radix(next()?, 16).ok()?,
        };
        // Rejects signs, upper case, leading zeros and further parts.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { id, begun } = self;
        write!(
            f,
            "{START}{:032x}/{:x}/{:x}/{begun:x}",
            id.coordinator, id.incarnation, id.sequence
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// NAMEDATALEN - 1: PostgreSQL cuts `application_name` off behind it.
    const LONGEST: usize = 63;

    const NAME: Name = Name {
        id: Id {
            coordinator: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
            incarnation: 31,
            sequence: 42,
        },
        begun: 0xff_0000,
    };

    #[test]
    fn a_name_is_printed_as_documented() {
        let text = "txn/123456789abcdef01122334455667788/1f/2a/ff0000";
        assert_eq!(NAME.to_string(), text);
        assert_eq!(Name::parse(text), Some(NAME));
    }

    /// 4096 starts, 300 years, and 2^36 transactions since the start.
    #[test]
    fn names_are_short_enough() {
        let name = Name {
            id: Id {
                coordinator: u128::MAX,
                incarnation: 0xfff,
                sequence: 0xf_ffff_ffff,
            },
            begun: 300 * 366 * 86_400_000,
        };
        assert!(name.to_string().len() <= LONGEST, "{name}");
    }

    #[test]
    fn other_names_are_none() {
        let text = NAME.to_string();
        let wrong = [
            String::new(),
            "txn".to_owned(),
            "txn/".to_owned(),
            "psql".to_owned(),
            format!("{text}/"),
            format!("{text}/1"),
            format!(" {text}"),
            text.replace("/2a/", "/02a/"),
            text.replace("/2a/", "/2A/"),
            text.replace("/2a/", "/+2a/"),
            text.replace("/2a/", "//"),
        ];
        for wrong in wrong {
            assert_eq!(Name::parse(&wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_name_is_parsed_to_itself(
            coordinator: u128, incarnation: u64, sequence: u64, begun: u64
        ) {
            let name = Name { id: Id { coordinator, incarnation, sequence }, begun };
            prop_assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
    }
}
