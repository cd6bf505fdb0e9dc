//! `tenure run`, `elect` and `once`, by the real binary: real children and grandchildren, on every engine that is shared
//! by processes.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

/// Makes a test of each function, once for each engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod redis {
            $(#[test]
            fn $test() {
                super::$test(&crate::stage::Stage::redis());
            })+
        }
        mod file {
            $(#[test]
            fn $test() {
                super::$test(&crate::stage::Stage::file());
            })+
        }
    };
}

#[path = "run/codes.rs"]
mod codes;
#[path = "run/dead.rs"]
mod dead;
#[path = "run/elect.rs"]
mod elect;
#[path = "run/lost.rs"]
mod lost;
#[path = "run/once.rs"]
mod once;
#[path = "run/power_cut.rs"]
mod power_cut;
#[path = "run/signals.rs"]
mod signals;
#[path = "run/stage.rs"]
mod stage;
#[path = "run/streams.rs"]
mod streams;
#[path = "run/survivors.rs"]
mod survivors;
#[path = "run/terminal.rs"]
mod terminal;
