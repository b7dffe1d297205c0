//! Collects what is wrong with single operations and pairs of them.
use crate::check::store::{Place, Version};
use crate::check::verdict::{Anomaly, Class};
use crate::model::{Object, Value};

/// Anomalies that are told in full.
const TOLD: usize = 20;

/// Collects what is wrong.
#[derive(Default)]
pub struct Report {
    anomalies: Vec<Anomaly>,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.anomalies.is_empty()
    }

    pub fn into_anomalies(self) -> Vec<Anomaly> {
        self.anomalies
    }

    fn push(&mut self, class: Class, transactions: Vec<usize>, text: impl FnOnce() -> String) {
        let told = self
            .anomalies
            .iter()
            .filter(|anomaly| anomaly.class == class);
        if told.count() < TOLD {
            self.anomalies.push(Anomaly {
                class,
                transactions,
                text: text(),
            });
        }
    }

    /// Something is wrong with one operation.
    pub fn single(&mut self, class: Class, place: Place, text: &str) {
        self.push(class, vec![place.transaction as usize], || {
            format!("T{} in operation {}: {text}", place.transaction, place.op)
        });
    }

    /// Two operations that do not go together.
    pub fn pair(&mut self, class: Class, one: Place, other: Place, text: &str) {
        let transactions = vec![one.transaction as usize, other.transaction as usize];
        self.push(class, transactions, || {
            let of = |place: Place| format!("T{} (operation {})", place.transaction, place.op);
            format!("{} and {}: {text}", of(one), of(other))
        });
    }

    /// A value was seen that nobody wrote to `object`.
    pub fn garbage(&mut self, place: Place, object: Object, value: Option<Value>) {
        let value = value.map_or("nothing".to_owned(), |value| value.to_string());
        let text = format!("{object} = {value}, which nobody wrote there");
        self.single(Class::Garbage, place, &text);
    }

    /// A version was seen that nobody but its writer may see.
    pub fn tainted(&mut self, class: Class, place: Place, version: &Version) {
        let transactions = vec![version.writer as usize, place.transaction as usize];
        self.push(class, transactions, || {
            format!(
                "T{} in operation {} saw {} = {:?} of T{} (operation {})",
                place.transaction,
                place.op,
                version.object,
                version.value.unwrap_or_default(),
                version.writer,
                version.op
            )
        });
    }
}
