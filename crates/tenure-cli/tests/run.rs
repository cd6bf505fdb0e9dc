//! `tenure run`, `elect` and `once`, by the real binary: real children and grandchildren, on every engine that is shared
//! by processes.

/// Makes a test of each function, once for each engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod redis {
            $(#[test]
            fn $test() {
                super::$test(&crate::run::test_env::TestEnv::redis());
            })+
        }
        mod postgres {
            $(#[test]
            fn $test() {
                super::$test(&crate::run::test_env::TestEnv::postgres());
            })+
        }
        mod file {
            $(#[test]
            fn $test() {
                super::$test(&crate::run::test_env::TestEnv::file());
            })+
        }
    };
}

mod away;
mod codes;
mod dead;
mod elect;
mod lost;
mod once;
mod power_cut;
mod signals;
mod streams;
mod survivors;
mod terminal;
mod test_env;
