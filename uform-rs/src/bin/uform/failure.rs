//! Why the program ends early, and with which code.

use std::fmt::Display;
use std::io;

/// The result of everything in the program.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Why the program ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot go on.
    Failed(String),
    /// The arguments contradict each other or the input.
    Usage(String),
    /// It is done, but this many texts could not be embedded.
    Rows(usize),
    /// It was stopped by Ctrl-C, after this many texts.
    Interrupted(u64),
    /// Whoever read the output wants no more of it.
    Closed,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Rows(_) => 3,
            Self::Interrupted(_) => 130,
            Self::Closed => 0,
        }
    }

    /// What is written to stderr, if anything.
    pub(crate) fn sentence(&self) -> Option<String> {
        match self {
            Self::Failed(sentence) | Self::Usage(sentence) => Some(sentence.clone()),
            Self::Rows(1) => Some("1 text could not be embedded".to_owned()),
            Self::Rows(count) => Some(format!("{count} texts could not be embedded")),
            Self::Interrupted(texts) => {
                Some(format!("interrupted after {texts} texts; what was done is written"))
            }
            Self::Closed => None,
        }
    }

    /// The failure of something about a file.
    pub(crate) fn of(what: impl Display, why: impl Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// The same, when so many texts had been written before.
    pub(crate) fn after(self, written: usize) -> Self {
        match self {
            Self::Failed(sentence) if written > 0 => {
                Self::Failed(format!("{sentence}; texts written before it: {written}"))
            }
            other => other,
        }
    }

    /// The failure of writing to an output.
    pub(crate) fn writing(name: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::of(name, error),
        }
    }
}

impl From<uform::Error> for Failure {
    fn from(error: uform::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
