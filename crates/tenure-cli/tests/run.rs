//! `tenure run`, `elect` and `once`, by the real binary: real children and grandchildren, on every engine that is shared
//! by processes.

/// Makes a test of each function, once for each engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod redis {
            $(#[test]
            fn $test() {
                super::$test(&crate::run::stage::Stage::redis());
            })+
        }
        mod file {
            $(#[test]
            fn $test() {
                super::$test(&crate::run::stage::Stage::file());
            })+
        }
    };
}

mod codes;
mod dead;
mod elect;
mod lost;
mod once;
mod power_cut;
mod signals;
mod stage;
mod streams;
mod survivors;
mod terminal;
