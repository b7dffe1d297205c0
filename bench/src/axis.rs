//! What the places differ in at which a benchmark measures.

use super::table::once;

/// One such thing.
pub struct Axis<A: 'static> {
    /// Of a plot over it.
    pub name: &'static str,
    /// A place on it, in short.
    pub tick: fn(&A) -> String,
    /// The place in words.
    pub label: fn(&A) -> String,
}

impl<A> Axis<A> {
    /// Those in which the places differ; if there is none, the last resort.
    pub fn varying<'a>(all: &'a [Self], places: &[A], last_resort: &'a Self) -> Vec<&'a Self> {
        let differs = |axis: &&Self| {
            let mut labels = places.iter().map(axis.label);
            let first = labels.next();
            labels.any(|label| Some(label) != first)
        };
        let varying: Vec<&Self> = all.iter().filter(differs).collect();
        match varying.is_empty() {
            true => vec![last_resort],
            false => varying,
        }
    }
}

/// A place in words.
pub fn label<A>(axes: &[&Axis<A>], at: &A) -> String {
    let labels: Vec<String> = axes.iter().map(|axis| (axis.label)(at)).collect();
    labels.join(", ")
}

/// Each of the values at all places that differ in something else; the places as they are if there
/// is no value.
pub fn replace<A: Copy + PartialEq, T: Copy>(
    places: &mut Vec<A>,
    values: &[T],
    set: impl Fn(&mut A, T),
) {
    let Some(first) = values.first() else {
        return;
    };
    let with = |at: &A, value: &T| {
        let mut at = *at;
        set(&mut at, *value);
        at
    };
    let others = once(places.iter().map(|at| with(at, first)));
    let all = others.iter();
    *places = all
        .flat_map(|at| values.iter().map(|value| with(at, value)))
        .collect();
}

/// So many of them.
pub fn count(number: u64, one: &str, several: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {several}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Place = (u64, u64);

    const ALL: [Axis<Place>; 2] = [
        Axis {
            name: "scans",
            tick: |at| at.0.to_string(),
            label: |at| count(at.0, "key", "keys"),
        },
        Axis {
            name: "clients",
            tick: |at| at.1.to_string(),
            label: |at| count(at.1, "client", "clients"),
        },
    ];

    #[test]
    fn labels_have_what_differs_and_places_are_all_combinations() {
        let mut places = vec![(1, 1)];
        replace(&mut places, &[], |at, scan| at.0 = scan);
        replace(&mut places, &[1, 10], |at, scan| at.0 = scan);
        let varying = Axis::varying(&ALL, &places, &ALL[1]);
        let labels = places.iter().map(|at| label(&varying, at));
        assert_eq!(labels.collect::<Vec<_>>(), ["1 key", "10 keys"]);
        replace(&mut places, &[4, 8], |at, clients| at.1 = clients);
        assert_eq!(places, [(1, 4), (1, 8), (10, 4), (10, 8)]);
        let varying = Axis::varying(&ALL, &places, &ALL[1]);
        assert_eq!(label(&varying, &places[3]), "10 keys, 8 clients");
        // A value in place of others stands for all of them; one that is asked for twice is there
        // twice.
        replace(&mut places, &[7], |at, scan| at.0 = scan);
        assert_eq!(places, [(7, 4), (7, 8)]);
        replace(&mut places, &[1, 1], |at, clients| at.1 = clients);
        assert_eq!(places, [(7, 1), (7, 1)]);
        let alone = Axis::varying(&ALL, &places[..1], &ALL[1]);
        assert_eq!(label(&alone, &places[0]), "1 client");
    }
}
