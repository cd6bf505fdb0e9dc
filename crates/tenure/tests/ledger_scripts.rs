//! The rule, told as scripts: what is asked, what is answered, what others hear, what is left.
//!
//! A line of the expected text is one step: the answer, then what others hear. `=` is the state:
//! holders by fence, waiters by ticket. The first number of a name is 1; a claim takes one as its
//! ticket and one as its fence. `tests/scripts/mod.rs` has the language.

mod scripts;

use scripts::{Script, check};

// ---------------------------------------------------------------- order

#[test]
fn the_next_in_line_is_served_in_the_step_that_frees() {
    check(
        "a claims; b claims; c claims; a leaves; b leaves; c leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for at first 2s
         b: released; c hears granted 6 for at first 2s
         c: released
         = nobody",
    );
}
