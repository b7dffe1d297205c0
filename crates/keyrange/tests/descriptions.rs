//! What messages say of images.

use keyrange::{Bound, Decoded, FIRST_NULL, Image, Interval, Kind, Layout, Numeric, Value};

fn decoded(kind: Kind, value: Value) -> Decoded {
    let layout = Layout::fit(&[kind]);
    layout.key(layout.image(&[value]).low()).remove(0)
}

fn number(negative: bool, weight: i32, digits: &[u16]) -> Decoded {
    let numeric = Numeric::Finite {
        negative,
        weight,
        digits,
    };
    decoded(Kind::Numeric, Value::Numeric(numeric))
}

#[test]
fn values_come_back() {
    for int in [i64::MIN, -1, 0, 1, 4711, i64::MAX] {
        assert_eq!(decoded(Kind::Int8, Value::Int(int)), Decoded::Int(int));
    }
    for int in [i64::from(i32::MIN), -5, 7, i64::from(i32::MAX)] {
        assert_eq!(decoded(Kind::Int4, Value::Int(int)), Decoded::Int(int));
    }
    for float in [f64::NEG_INFINITY, -1.5, 0.0, 1e300, f64::INFINITY] {
        assert_eq!(
            decoded(Kind::Float8, Value::Float(float)),
            Decoded::Float(float)
        );
    }
    assert_eq!(decoded(Kind::Bool, Value::Bool(true)), Decoded::Bool(true));
    assert_eq!(decoded(Kind::Oid, Value::Oid(9)), Decoded::Oid(9));
    assert_eq!(decoded(Kind::Int4, Value::Null), Decoded::Null);
    assert_eq!(
        decoded(Kind::Text, Value::Text(b"abc")),
        Decoded::Text(b"abc".to_vec())
    );
}

#[test]
fn numbers_are_told_as_decimals() {
    let texts = [
        (number(false, 0, &[12, 3400]), "12.34"),
        (number(true, 1, &[1, 2, 5]), "-10002.0005"),
        (number(false, -1, &[5000]), "0.5"),
        (number(false, -2, &[1]), "0.00000001"),
        (number(false, 2, &[7]), "700000000"),
        (number(false, 0, &[]), "0"),
        (number(false, 40, &[3, 5000]), "3.5e160"),
        (decoded(Kind::Numeric, Value::Numeric(Numeric::NaN)), "NaN"),
        (
            decoded(Kind::Numeric, Value::Numeric(Numeric::Infinity)),
            "Infinity",
        ),
        (
            decoded(Kind::Numeric, Value::Numeric(Numeric::NegativeInfinity)),
            "-Infinity",
        ),
    ];
    for (number, text) in texts {
        assert_eq!(number, Decoded::Numeric(text.to_owned()));
    }
}

#[test]
fn bounds_leave_out_what_they_do_not_bound() {
    let layout = Layout::fit(&[Kind::Int4, Kind::Int4]);
    assert_eq!(layout.low_bound(Interval::ALL.low()), Bound::Open);
    assert_eq!(layout.high_bound(Image::MAX), Bound::Open);
    assert_eq!(layout.high_bound(FIRST_NULL - 1), Bound::Open);
    let of_five = layout.image(&[Value::Int(5), Value::Unknown]);
    let five = Bound::Key(vec![Decoded::Int(5)]);
    assert_eq!(
        (
            layout.low_bound(of_five.low()),
            layout.high_bound(of_five.high())
        ),
        (five.clone(), five)
    );
    let both = layout.image(&[Value::Int(5), Value::Int(6)]).low();
    let key = Bound::Key(vec![Decoded::Int(5), Decoded::Int(6)]);
    assert_eq!(
        (layout.low_bound(both), layout.high_bound(both)),
        (key.clone(), key)
    );
}
