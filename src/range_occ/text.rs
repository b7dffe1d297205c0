//! Keys and intervals as users read them.

use super::column::Column;
use super::key::Table;
use keyrange::{Bound, Decoded, Interval};
use pgrx::pg_sys::{self, Oid};

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;

/// A date, by its number of days since 2000-01-01.
fn date(days: i64) -> String {
    const EPOCH: i64 = 2_451_545; // utils/timestamp.h: POSTGRES_EPOCH_JDATE
    match days {
        _ if days == i64::from(i32::MAX) => return "infinity".to_owned(),
        _ if days == i64::from(i32::MIN) => return "-infinity".to_owned(),
        _ => {}
    }
    let (mut year, mut month, mut day) = (0, 0, 0);
    // SAFETY: arithmetic.
    unsafe { pg_sys::j2date((days + EPOCH) as i32, &mut year, &mut month, &mut day) };
    if year > 0 {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{:04}-{month:02}-{day:02} BC", 1 - year)
    }
}

/// A time of day in microseconds.
fn time(microseconds: i64) -> String {
    let seconds = microseconds / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = format!("{:06}", microseconds % 1_000_000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{hour:02}:{minute:02}:{second:02}{point}{fraction}")
}

fn timestamp(microseconds: i64) -> String {
    match microseconds {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        _ => {
            let (days, rest) = (
                microseconds.div_euclid(MICROSECONDS_PER_DAY),
                microseconds.rem_euclid(MICROSECONDS_PER_DAY),
            );
            format!("{} {}", date(days), time(rest))
        }
    }
}

fn integer(typ: Oid, int: i64) -> String {
    match typ {
        pg_sys::DATEOID => date(int),
        pg_sys::TIMEOID => time(int),
        pg_sys::TIMESTAMPOID => timestamp(int),
        pg_sys::TIMESTAMPTZOID if int == i64::MAX || int == i64::MIN => timestamp(int),
        pg_sys::TIMESTAMPTZOID => format!("{}+00", timestamp(int)),
        _ => int.to_string(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(column: &Column, value: &Decoded) -> String {
    match value {
        Decoded::Null => "NULL".to_owned(),
        Decoded::Bool(bool) => bool.to_string(),
        Decoded::Int(int) => integer(column.typ, *int),
        Decoded::Oid(oid) => oid.to_string(),
        Decoded::Float(float) if float.is_infinite() && *float < 0.0 => "-Infinity".to_owned(),
        Decoded::Float(float) if float.is_infinite() => "Infinity".to_owned(),
        Decoded::Float(float) => float.to_string(),
        Decoded::Numeric(number) => number.clone(),
        Decoded::Uuid(bytes) => {
            let digits = hex(bytes);
            let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
            parts.map(|part| digits[part].to_owned()).join("-")
        }
        Decoded::Text(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
        Decoded::Bytes(bytes) => format!("\\x{}", hex(bytes)),
    }
}

/// The key with these values in its first columns.
fn key(table: &Table, values: &[Decoded]) -> String {
    let texts = table.columns.iter().zip(values).map(|(c, v)| value(c, v));
    let texts: Vec<String> = texts.collect();
    if table.columns.len() > 1 {
        format!("({})", texts.join(", "))
    } else {
        texts.concat()
    }
}

/// The lowest and the highest key of an interval; `None` where it is open.
pub fn bounds(table: &Table, interval: &Interval) -> (Option<String>, Option<String>) {
    let Some(layout) = &table.layout else {
        return (None, None);
    };
    let text = |bound| match bound {
        Bound::Open => None,
        Bound::Key(values) => Some(key(table, &values)),
    };
    (
        text(layout.low_bound(interval.low())),
        text(layout.high_bound(interval.high())),
    )
}

/// An interval in a sentence.
pub fn interval(table: &Table, interval: &Interval) -> String {
    match bounds(table, interval) {
        (Some(low), Some(high)) if low == high => format!("key {low}"),
        (Some(low), Some(high)) => format!("keys {low} to {high}"),
        (Some(low), None) => format!("keys from {low} on"),
        (None, Some(high)) => format!("keys up to {high}"),
        (None, None) => "any key".to_owned(),
    }
}
