//! Keeps every number that the process tells through the `metrics` facade.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A number with its labels, and all values that a histogram was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
    pub(crate) values: Vec<f64>,
}

struct Keeper;

struct Cell(Mutex<Number>);

/// Its name, what it is, and its labels.
type At = (String, &'static str, BTreeMap<String, String>);

static CELLS: Mutex<BTreeMap<At, Arc<Cell>>> = Mutex::new(BTreeMap::new());
static DESCRIBED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert!(metrics::set_global_recorder(Keeper).is_ok(), "the only one"));
}

/// Everything that was told: the name, what it is, and the number.
pub(crate) fn told() -> Vec<(String, &'static str, Number)> {
    let cells = locked(&CELLS);
    cells
        .iter()
        .map(|((name, kind, _), cell)| (name.clone(), *kind, locked(&cell.0).clone()))
        .collect()
}

/// What each name was described as.
pub(crate) fn described() -> BTreeMap<String, String> {
    locked(&DESCRIBED).clone()
}

/// The numbers of that name whose labels have these values.
pub(crate) fn of(name: &str, labels: &[(&str, &str)]) -> Vec<Number> {
    let has = |number: &Number| {
        labels
            .iter()
            .all(|(key, value)| number.labels.get(*key).is_some_and(|known| known == value))
    };
    let numbers = told().into_iter().filter(|(known, ..)| known == name);
    numbers.map(|(_, _, number)| number).filter(has).collect()
}

/// The sum of what `of` finds.
pub(crate) fn sum(name: &str, labels: &[(&str, &str)]) -> f64 {
    of(name, labels).iter().map(|number| number.value).sum()
}

/// All values of the histograms that `of` finds.
pub(crate) fn values(name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    of(name, labels).into_iter().flat_map(|number| number.values).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cell(key: &Key, kind: &'static str) -> Arc<Cell> {
    let label = |label: &metrics::Label| (label.key().to_owned(), label.value().to_owned());
    let labels: BTreeMap<_, _> = key.labels().map(label).collect();
    let fresh =
        || Arc::new(Cell(Mutex::new(Number { labels: labels.clone(), ..Number::default() })));
    let at = (key.name().to_owned(), kind, labels.clone());
    locked(&CELLS).entry(at).or_insert_with(fresh).clone()
}

impl Recorder for Keeper {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        locked(&DESCRIBED).insert(name.as_str().to_owned(), text.to_string());
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(name, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(cell(key, "histogram"))
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        locked(&self.0).value += value as f64;
    }

    fn absolute(&self, value: u64) {
        locked(&self.0).value = value as f64;
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        locked(&self.0).value += value;
    }

    fn decrement(&self, value: f64) {
        locked(&self.0).value -= value;
    }

    fn set(&self, value: f64) {
        locked(&self.0).value = value;
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        locked(&self.0).values.push(value);
    }
}
