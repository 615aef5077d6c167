//! What goes wrong, as it is told on stderr, and the exit status that it gives.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use clap::error::{ContextKind, ContextValue};
use segue::error::Error;

use super::args;

/// The exit status for a world that said no.
const FAILED: u8 = 1;
/// The exit status for a command that can't work as it is.
const USAGE: u8 = 2;

/// One fault: a line, its causes, and perhaps a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    text: String,
    causes: Vec<String>,
    hint: Option<String>,
    status: u8,
}

impl Fault {
    /// A command that can't work as it is.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), causes: Vec::new(), hint: None, status: USAGE }
    }

    /// Something that a later version will do.
    pub(crate) fn later(what: impl fmt::Display) -> Self {
        Self::usage(format!("{what} is not in this version"))
    }

    /// Something that needs Kafka, in a program without it.
    #[cfg(not(feature = "kafka"))]
    pub(crate) fn without_kafka(what: impl fmt::Display) -> Self {
        Self::usage(format!("{what}: this program is built without the feature kafka"))
            .with_hint("build it with: cargo build --release --features kafka")
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn is_usage(&self) -> bool {
        self.status == USAGE
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = one_line(&error.to_string());
        let mut causes: Vec<String> = Vec::new();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            let line = one_line(&error.to_string());
            // Some libraries repeat their cause in their own text.
            if !causes.last().unwrap_or(&text).ends_with(&line) {
                causes.push(line);
            }
            cause = error.source();
        }
        let status = if error.is_usage() { USAGE } else { FAILED };
        Self { text, causes, hint: error.hint(), status }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// All faults of the first kind of check that failed, or a reader of stdout that is gone.
#[derive(Debug)]
pub(crate) enum Failure {
    Faults(Vec<Fault>),
    /// Nobody reads stdout any more, which is nobody's fault.
    StdoutClosed,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Faults(vec![fault])
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Output { target, source } if target == "stdout" && is_broken_pipe(source.as_ref()) => {
                Self::StdoutClosed
            }
            error => Fault::from(error).into(),
        }
    }
}

impl From<Vec<Error>> for Failure {
    fn from(errors: Vec<Error>) -> Self {
        Self::Faults(errors.into_iter().map(Fault::from).collect())
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(cause);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Failure {
    /// Keeps the faults of the first kind that there are: what was asked for wrongly before what the world says.
    pub(crate) fn of_first_kind(faults: Vec<Fault>) -> Self {
        let (usage, world): (Vec<_>, Vec<_>) = faults.into_iter().partition(Fault::is_usage);
        Self::Faults(if usage.is_empty() { world } else { usage })
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::StdoutClosed => 0,
            Self::Faults(faults) => faults.first().map_or(FAILED, |fault| fault.status),
        }
    }

    /// Tells every fault, and the first hint.
    pub(crate) fn tell(&self, mut to: impl Write) -> io::Result<()> {
        let Self::Faults(faults) = self else { return Ok(()) };
        for fault in faults {
            writeln!(to, "error: {}", fault.text)?;
            for cause in &fault.causes {
                writeln!(to, "caused by: {cause}")?;
            }
        }
        match faults.iter().find_map(|fault| fault.hint.as_ref()) {
            Some(hint) => writeln!(to, "hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// A fault that clap found, in our manner.
impl From<clap::Error> for Fault {
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        // The first paragraph tells the fault; what comes behind is usage.
        let paragraph: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
        let told = paragraph.join(" ");
        let told = told.strip_prefix("error: ").unwrap_or(&told).to_owned();
        let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| match error.get(kind)? {
                ContextValue::String(text) => Some(text.clone()),
                ContextValue::Strings(texts) => texts.iter().find(|text| !is_hidden(text)).cloned(),
                _ => None,
            });
        let hint = match suggested {
            Some(suggested) => format!("did you mean '{suggested}'?"),
            None => "`segue help COMMAND` shows what a command takes".to_owned(),
        };
        Self::usage(told).with_hint(hint)
    }
}

/// Says whether a word is a command that isn't shown, since it isn't there yet.
fn is_hidden(word: &str) -> bool {
    args::command().get_subcommands().any(|command| command.get_name() == word && command.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(failure: &Failure) -> String {
        let mut text = Vec::new();
        failure.tell(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn causes_are_told_once_and_on_one_line_each() {
        let io = Error::Io {
            path: "x".into(),
            action: "cannot read",
            source: io::Error::new(ErrorKind::PermissionDenied, "denied"),
        };
        assert_eq!(told(&io.into()), "error: x: cannot read: denied\n");

        let output = Error::Output { target: "out/p".into(), source: "disk\nfull".into() };
        assert_eq!(told(&output.into()), "error: out/p: cannot write\ncaused by: disk; full\n");
    }

    #[test]
    fn a_closed_stdout_is_no_fault_and_another_closed_pipe_is() {
        let closed = |target: &str| Error::Output {
            target: target.into(),
            source: Box::new(io::Error::from(ErrorKind::BrokenPipe)),
        };
        assert_eq!(Failure::from(closed("stdout")).status(), 0);
        assert_eq!(Failure::from(closed("pipe")).status(), FAILED);
    }

    #[test]
    fn what_was_asked_for_wrongly_comes_before_what_the_world_says() {
        let missing = Fault::from(Error::NotFound { what: "a: no such file".into() });
        let failure = Failure::of_first_kind(vec![missing.clone(), Fault::usage("b")]);
        assert_eq!((told(&failure).as_str(), failure.status()), ("error: b\n", USAGE));
        assert_eq!(Failure::of_first_kind(vec![missing]).status(), FAILED);
    }
}
