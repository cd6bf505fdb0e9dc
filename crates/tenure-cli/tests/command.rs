//! The tests of the command, in one program: one is linked faster than twelve.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod bench;
mod command_line;
mod demo;
mod doctor;
mod errors;
mod guards;
mod help;
mod migration;
mod names;
mod relay;
mod run;
mod sandbox;
mod scripts;
mod secrets;
mod serve;
mod serve_socket;
mod setup;
mod top;
mod top_terminal;
mod values;
