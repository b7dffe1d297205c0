//! Values of one key column as numbers in the order of the values.
//!
//! A *field* is such a number of a given width in bits. Whether a field holds its value exactly (no
//! other value has the same field) can be told from the field alone: that keeps composite keys in
//! order (`layout.rs`).

/// The order of a key column. Date is `Int4`, timestamp, timestamptz and time are `Int8`, float4 is
/// `Float8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    /// NaN above everything, -0 equal to 0.
    Float8,
    Uuid,
    Numeric,
    /// Compared byte by byte, without zero bytes: text and varchar in the C collation, char(n)
    /// without its trailing blanks. For equality alone, any deterministic collation.
    Text,
    /// bytea.
    Bytes,
}

/// A value of a key column, or a constant it is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// An integer of any width, a date or a time.
    Int(i64),
    Oid(u32),
    Float(f64),
    Uuid([u8; 16]),
    Numeric(Numeric<'a>),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// A value without an image, say of another type than the column: whatever depends on it is
    /// widened.
    Unknown,
}

/// A numeric, as PostgreSQL's NumericVar has it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Numeric<'a> {
    NegativeInfinity,
    /// The sum of `digits[i] * 10000^(weight - i)`; each digit is below 10000. Zeros at either end
    /// do no harm.
    Finite {
        negative: bool,
        weight: i32,
        digits: &'a [u16],
    },
    Infinity,
    NaN,
}

/// What a field tells of its value.
#[derive(Clone, PartialEq, Debug)]
pub enum Decoded {
    Null,
    Bool(bool),
    /// An integer, date or time; the last one that the field has room for stands for all beyond it.
    Int(i64),
    Oid(u32),
    Float(f64),
    Uuid([u8; 16]),
    /// A number's first digits.
    Numeric(String),
    /// A text's first bytes.
    Text(Vec<u8>),
    /// A bytea's first bytes.
    Bytes(Vec<u8>),
}

/// A value's field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) field: u128,
    /// No other value of any width has this field.
    pub(crate) exact: bool,
}

/// Digits of a numeric that its image has, to the base of 10000.
const NUMERIC_DIGITS: usize = 7;
const DIGIT_BITS: u32 = 14;
const NUMERIC_WEIGHT_BITS: u32 = 17;
/// Sign, weight, digits, and a bit that says that there were more digits.
const NUMERIC_BITS: u32 = 1 + NUMERIC_WEIGHT_BITS + NUMERIC_DIGITS as u32 * DIGIT_BITS + 1;

impl Kind {
    /// The bits that hold every value exactly, or all that can be used.
    pub(crate) fn natural_bits(self) -> u32 {
        match self {
            Kind::Bool => 1,
            Kind::Int2 => 16,
            Kind::Int4 | Kind::Oid => 32,
            Kind::Int8 | Kind::Float8 => 64,
            Kind::Numeric => NUMERIC_BITS,
            Kind::Uuid | Kind::Text | Kind::Bytes => 128,
        }
    }

    /// The field of `value` in `bits` bits (1 to 127). `None` for NULL and for values that are not
    /// of this kind.
    pub(crate) fn place(self, value: Value, bits: u32) -> Option<Placed> {
        let natural = self.natural_bits();
        let whole = match (self, value) {
            (Kind::Int2 | Kind::Int4 | Kind::Int8, Value::Int(int)) => {
                return Some(place_int(int, natural, bits));
            }
            (Kind::Text, Value::Text(bytes)) => {
                let field = prefix(bytes) >> (128 - bits);
                let exact = bytes.len() < (bits / 8) as usize;
                return Some(Placed { field, exact });
            }
            (Kind::Bytes, Value::Bytes(bytes)) => {
                let field = prefix(bytes) >> (128 - bits);
                return Some(Placed {
                    field,
                    exact: false,
                });
            }
            (Kind::Bool, Value::Bool(bool)) => u128::from(bool),
            (Kind::Oid, Value::Oid(oid)) => u128::from(oid),
            (Kind::Float8, Value::Float(float)) => u128::from(float_order(float)),
            (Kind::Uuid, Value::Uuid(bytes)) => u128::from_be_bytes(bytes),
            (Kind::Numeric, Value::Numeric(numeric)) => numeric.order(),
            _ => return None,
        };
        let field = whole >> natural.saturating_sub(bits);
        Some(Placed {
            field,
            exact: self.is_exact(field, bits),
        })
    }

    /// What the field of `bits` bits of a value that is not NULL tells of it.
    pub(crate) fn decode(self, field: u128, bits: u32) -> Decoded {
        let natural = self.natural_bits();
        let whole = field << natural.saturating_sub(bits);
        let prefix = || {
            let bytes = (field << (128 - bits)).to_be_bytes();
            let length = bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |n| n + 1);
            bytes[..length].to_vec()
        };
        match self {
            Kind::Bool => Decoded::Bool(whole != 0),
            Kind::Int2 | Kind::Int4 | Kind::Int8 => {
                let middle = 1_i128 << (natural.min(bits) - 1);
                Decoded::Int((field as i128 - middle) as i64)
            }
            Kind::Oid => Decoded::Oid(whole as u32),
            Kind::Float8 => Decoded::Float(float_of_order(whole as u64)),
            Kind::Uuid => Decoded::Uuid(whole.to_be_bytes()),
            Kind::Numeric => Decoded::Numeric(Numeric::of_order(whole)),
            Kind::Text => {
                let mut bytes = prefix();
                let length = bytes.iter().position(|&byte| byte == 0);
                bytes.truncate(length.unwrap_or(bytes.len()));
                Decoded::Text(bytes)
            }
            Kind::Bytes => Decoded::Bytes(prefix()),
        }
    }

    /// Whether all keys with this field have the same value.
    pub(crate) fn is_exact(self, field: u128, bits: u32) -> bool {
        let complete = bits >= self.natural_bits();
        match self {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => {
                complete || (field != 0 && field != (1 << bits) - 1)
            }
            // No value has a zero byte: a field that ends with one holds the whole value.
            Kind::Text => bits >= 8 && (field >> (bits % 8)) & 0xff == 0,
            Kind::Bytes => false,
            Kind::Numeric => complete && field & 1 == 0,
            Kind::Bool | Kind::Oid | Kind::Float8 | Kind::Uuid => complete,
        }
    }
}

/// Integers beyond what `bits` bits hold are taken for the last one that they do hold: small
/// numbers stay exact.
fn place_int(int: i64, natural: u32, bits: u32) -> Placed {
    if bits >= natural {
        // No value of the column's own type is cut.
        let lowest = i64::MIN >> (64 - natural);
        let clamped = int.clamp(lowest, !lowest);
        let field = u128::from(clamped.wrapping_sub(lowest) as u64);
        let exact = clamped == int;
        return Placed { field, exact };
    }
    let highest = (1_i128 << (bits - 1)) - 1;
    let lowest = -highest - 1;
    let wide = i128::from(int);
    let field = (wide.clamp(lowest, highest) - lowest) as u128;
    let exact = lowest < wide && wide < highest;
    Placed { field, exact }
}

fn float_order(float: f64) -> u64 {
    let float = if float.is_nan() {
        f64::NAN.copysign(1.0)
    } else {
        float + 0.0 // -0 becomes 0
    };
    let bits = float.to_bits();
    if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    }
}

fn float_of_order(order: u64) -> f64 {
    f64::from_bits(if order >> 63 == 0 {
        !order
    } else {
        order & !(1 << 63)
    })
}

fn prefix(bytes: &[u8]) -> u128 {
    let mut first = [0; 16];
    let length = bytes.len().min(16);
    first[..length].copy_from_slice(&bytes[..length]);
    u128::from_be_bytes(first)
}

/// The order of 0.
const ZERO: u128 = 1 << (NUMERIC_BITS - 1);
/// The distance of the infinities from 0.
const INFINITY: u128 = (ZERO - 1) & !3;

impl Numeric<'_> {
    /// The text of the number of that order.
    fn of_order(order: u128) -> String {
        let magnitude = order.abs_diff(ZERO);
        if magnitude >= INFINITY {
            return match order {
                _ if order < ZERO => "-Infinity",
                _ if magnitude == INFINITY => "Infinity",
                _ => "NaN",
            }
            .to_owned();
        }
        if magnitude == 0 {
            return "0".to_owned();
        }
        let digits: [u128; NUMERIC_DIGITS] = std::array::from_fn(|n| {
            let shift = 1 + (NUMERIC_DIGITS - 1 - n) as u32 * DIGIT_BITS;
            (magnitude >> shift) & ((1 << DIGIT_BITS) - 1)
        });
        let scale = magnitude >> (1 + NUMERIC_DIGITS as u32 * DIGIT_BITS);
        Self::text(order < ZERO, scale as i64 - (1 << 15) - 1, &digits)
    }

    fn order(&self) -> u128 {
        match *self {
            Numeric::NegativeInfinity => ZERO - INFINITY,
            Numeric::Infinity => ZERO + INFINITY,
            Numeric::NaN => ZERO + INFINITY + 2,
            Numeric::Finite {
                negative,
                weight,
                digits,
            } => {
                let magnitude = magnitude(weight, digits);
                if negative {
                    ZERO - magnitude
                } else {
                    ZERO + magnitude
                }
            }
        }
    }
}

/// The absolute value: weight, first digits, and whether there are more. 0 is 0.
fn magnitude(weight: i32, digits: &[u16]) -> u128 {
    let Some(first) = digits.iter().position(|&digit| digit != 0) else {
        return 0;
    };
    let weight = i64::from(weight) - first as i64;
    let digits = &digits[first..];
    let head = (0..NUMERIC_DIGITS).fold(0, |head, n| {
        head << DIGIT_BITS | u128::from(digits.get(n).copied().unwrap_or(0))
    });
    let more = digits.iter().skip(NUMERIC_DIGITS).any(|&digit| digit != 0);
    // PostgreSQL's weights are those of an int16.
    let scale = (weight.clamp(-(1 << 15), (1 << 15) - 1) + (1 << 15) + 1) as u128;
    (scale << (NUMERIC_DIGITS as u32 * DIGIT_BITS) | head) << 1 | u128::from(more)
}
