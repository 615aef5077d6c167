//! Reads files as one ordered stream of rows.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
