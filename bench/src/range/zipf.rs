//! Zipf's law for pgbench scripts, whose own `random_zipfian` wants exponents above 1.

/// Ranks that have their exact share; the others have it to a thousandth.
const EXACT: usize = 10;

/// Ranks from 1 to a number of items, rank i with a probability proportional to i^-exponent. The
/// exponent is not 1.
///
/// A random number from 0 to 1 becomes a rank by the inverse of the running sum of shares: for the
/// first ranks the sum itself, for the others the integral of x^-exponent, which has the closed
/// form (a + b u)^c.
#[derive(Debug)]
pub struct Zipf {
    items: u64,
    /// The share of the ranks up to each of the first.
    shares: [f64; EXACT],
    a: f64,
    b: f64,
    c: f64,
}

impl Zipf {
    /// None of exponents that are 1 or not positive, and of few items.
    pub fn new(items: u64, exponent: f64) -> Option<Self> {
        let possible = exponent > 0.0 && exponent != 1.0 && items > 2 * EXACT as u64;
        if !possible {
            return None;
        }
        let mut shares = [0.0; EXACT];
        let mut sum = 0.0;
        for rank in 1..=items {
            sum += (rank as f64).powf(-exponent);
            if let Some(share) = shares.get_mut(rank as usize - 1) {
                *share = sum;
            }
        }
        let shares = shares.map(|share| share / sum);
        let first = shares[EXACT - 1];
        let power = 1.0 - exponent;
        let low = (EXACT as f64 + 0.5).powf(power);
        let high = (items as f64 + 0.5).powf(power);
        let b = (high - low) / (1.0 - first);
        Some(Self {
            items,
            shares,
            a: low - first * b,
            b,
            c: 1.0 / power,
        })
    }

    /// The lines of a script that set `variable` to `first` and up by the drawn rank, the ranks
    /// scattered over the items.
    pub fn draw(&self, variable: &str, first: &str) -> String {
        let cases: String = self
            .shares
            .iter()
            .enumerate()
            .map(|(index, share)| format!("WHEN :u < {share} THEN {index} "))
            .collect();
        let Self { items, a, b, c, .. } = self;
        let last = items - 1;
        format!(
            "\\set u random(0, 999999999) / 1000000000.0\n\
             \\set rank CASE {cases}ELSE least(int(pow({a} + ({b}) * :u, {c})) - 1, {last}) END\n\
             \\set {variable} {first} + permute(:rank, {items}, 1)\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: u64 = 1_000_000;

    /// The share of random numbers for which the closed form is at most `x`.
    fn drawn_up_to(zipf: &Zipf, x: f64) -> f64 {
        (x.powf(1.0 / zipf.c) - zipf.a) / zipf.b
    }

    #[test]
    fn every_rank_has_its_share() {
        for exponent in [0.5, 0.7, 0.88, 0.99, 1.04, 1.5] {
            let zipf = Zipf::new(ITEMS, exponent).unwrap();
            let share = |rank: u64| (rank as f64).powf(-exponent);
            let whole: f64 = (1..=ITEMS).map(share).sum();
            let mut below = 0.0;
            for (index, drawn) in zipf.shares.iter().enumerate() {
                below += share(index as u64 + 1) / whole;
                assert!((drawn - below).abs() < 1e-12, "{exponent}: rank {index}");
            }
            assert!((drawn_up_to(&zipf, EXACT as f64 + 0.5) - below).abs() < 1e-9);
            for rank in (EXACT as u64 + 1..1000).chain((1000..=ITEMS).step_by(997)) {
                let middle = rank as f64;
                let drawn = drawn_up_to(&zipf, middle + 0.5) - drawn_up_to(&zipf, middle - 0.5);
                let ratio = drawn / (share(rank) / whole);
                assert!(
                    (ratio - 1.0).abs() < 1.5e-3,
                    "{exponent}: rank {rank}: {ratio}"
                );
            }
        }
    }

    #[test]
    fn the_script_draws_within_the_items() {
        let zipf = Zipf::new(1000, 1.04).unwrap();
        assert!((zipf.a + zipf.b).powf(zipf.c) <= 1000.5 + 1e-6);
        let text = zipf.draw("key_1", ":first");
        assert!(text.contains("WHEN :u < ") && text.contains("THEN 9 ELSE"));
        assert!(text.ends_with("\\set key_1 :first + permute(:rank, 1000, 1)\n"));
    }

    #[test]
    fn no_exponent_of_one_and_no_handful_of_items() {
        assert!(Zipf::new(ITEMS, 1.0).is_none() && Zipf::new(ITEMS, 0.0).is_none());
        assert!(Zipf::new(20, 0.7).is_none());
    }
}
