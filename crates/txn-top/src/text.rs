//! Numbers, times and keys for people.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for what is not known (yet).
pub const UNKNOWN: &str = "–";

/// A rate, with a digit after the point while that matters.
pub fn rate(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        Some(value) => thousands(value),
    }
}

/// A time that has passed, with its two largest units.
pub fn age(microseconds: i64) -> String {
    let time = Duration::from_micros(microseconds.max(0).unsigned_abs());
    if time < Duration::from_secs(1) {
        return format!("{}ms", time.as_millis());
    }
    if time < Duration::from_secs(10) {
        return format!("{:.1}s", time.as_secs_f64());
    }
    let text = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A name or key as one harmless line, whatever is in it.
pub fn harmless(name: Option<&str>) -> String {
    let mut text = String::new();
    for c in name.unwrap_or(UNKNOWN).chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// At most `width` columns of `text`, the last one an ellipsis if something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let mut short: String = text.chars().take_while(fits).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// With a digit after the point while that matters.
pub fn microseconds(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1} µs")
    } else {
        format!("{} µs", thousands(value))
    }
}

/// A whole number, its thousands apart.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(999.4), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(12_345.0), "12,345");
        assert_eq!(microseconds(12.34), "12.3 µs");
        assert_eq!(microseconds(11_048.1), "11,048 µs");
    }

    #[test]
    fn rates_have_as_many_digits_as_mean_something() {
        assert_eq!(rate(None), "–");
        assert_eq!(rate(Some(0.0)), "0");
        assert_eq!(rate(Some(0.25)), "0.2");
        assert_eq!(rate(Some(9.96)), "10");
        assert_eq!(rate(Some(12_345.6)), "12,346");
    }

    #[test]
    fn ages_have_two_units() {
        assert_eq!(age(-5), "0ms");
        assert_eq!(age(12_345), "12ms");
        assert_eq!(age(2_340_000), "2.3s");
        assert_eq!(age(42_900_000), "42s");
        assert_eq!(age(3_723_000_000), "1h 2m");
        assert_eq!(age(90_000_000_000), "1day 1h");
    }

    #[test]
    fn keys_cannot_move_the_cursor() {
        assert_eq!(harmless(Some("a\x1b[2J\nb")), "a\\u{1b}[2J\\nb");
        assert_eq!(harmless(Some("(1,ä)")), "(1,ä)");
        assert_eq!(harmless(None), "–");
    }

    #[test]
    fn cut_text_fits() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }
}
