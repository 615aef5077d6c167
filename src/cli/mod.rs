//! The `segue` program, in layers: [`args`] as typed, [`input`], [`chain`] and [`sink`] as meant, then the commands.

mod args;
mod bad_records;
mod chain;
mod commands;
mod console;
#[cfg(feature = "kafka")]
mod demo;
mod fault;
mod input;
mod job;
mod memory;
mod metrics;
mod plan;
mod sink;
mod status;

use std::io;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use segue::error::Error;

use self::args::{Cli, Command};
use self::console::Console;
use self::fault::{Failure, Fault};

/// Threads that carry I/O and the pipeline; decoding has threads of its own.
const IO_THREADS: usize = 2;

/// Runs the command line, and returns its exit status.
pub(crate) fn main() -> ExitCode {
    memory::set_up_heap();
    let cli = match parse() {
        Ok(Some(cli)) => cli,
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => return ended(&failure),
    };
    let console = Console::start(&cli.talk);
    match cli.command.map_or_else(help, |command| run(command, &console)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => ended(&failure),
    }
}

/// Understands the command line; `None` if help or the version was asked for, and printed.
fn parse() -> Result<Option<Cli>, Failure> {
    let matches = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    match matches {
        Ok(cli) => Ok(Some(cli)),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            commands::print(&e.render().to_string())?;
            Ok(None)
        }
        Err(e) => Err(Fault::from(e).into()),
    }
}

fn help() -> Result<u8, Failure> {
    commands::print(&args::command().render_help().to_string())?;
    Ok(0)
}

fn run(command: Command, console: &Console) -> Result<u8, Failure> {
    match command {
        Command::Read(args) => on_runtime(commands::read(&args, console)),
        Command::Copy(args) => on_runtime(commands::copy(&args, console)),
        Command::Plan(args) => on_runtime(plan::plan(&args, console)),
        Command::Schema(args) => on_runtime(commands::schema(&args, console)),
        Command::Gen(args) => on_runtime(commands::generate_rows(&args, console)),
        Command::Status(args) => status::status(&args),
        Command::Options(args) => commands::options(&args),
        Command::Completions(args) => commands::completions(&args),
        #[cfg(feature = "kafka")]
        Command::Demo(args) => on_runtime(demo::demo(&args)),
        #[cfg(not(feature = "kafka"))]
        Command::Demo(_) => Err(Fault::without_kafka("demo").into()),
        Command::Sql(_) => Err(Fault::later("sql").into()),
        Command::Rewind(_) => Err(Fault::later("rewind").into()),
    }
}

fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .enable_all()
        .build()
        .map_err(|source| Error::Io { path: "threads".into(), action: "cannot start", source })?;
    let result = runtime.block_on(work);
    // What still runs in the background (a read of a slow store) must not hold up the end.
    runtime.shutdown_background();
    result
}

fn ended(failure: &Failure) -> ExitCode {
    // There is nobody left to tell that stderr is closed.
    let _ = failure.tell(io::stderr().lock());
    ExitCode::from(failure.status())
}
