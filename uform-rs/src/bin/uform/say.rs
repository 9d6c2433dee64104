//! What people read: results on stdout, remarks on stderr.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

use super::failure::{Failure, Outcome};

/// Writes a line of the result. A full disk or a closed pipe is a failure, not a panic.
pub(crate) fn line(text: impl Display) -> Outcome<()> {
    writeln!(stdout(), "{text}").map_err(|error| Failure::writing("stdout", &error))
}

/// Writes a remark. Nobody can be told when that does not work, and the work goes on.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(stderr(), "{text}");
}
