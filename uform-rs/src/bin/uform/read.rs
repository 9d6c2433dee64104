//! Texts out of files: lines, a field of JSON lines, or a column of CSV.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::ValueEnum;

use super::failure::{Failure, Outcome};

/// How texts lie in a file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One text a line
    Text,
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a header
    Csv,
}

/// What to read, and how.
pub(crate) struct Source {
    /// Files in their order; "-" is stdin.
    pub(crate) files: Vec<PathBuf>,
    /// `None` goes by the ending of each name.
    pub(crate) format: Option<Format>,
    /// The field of a JSON object that is the text.
    pub(crate) field: String,
    /// The column of CSV that is the text; `None` for the only one, or the one named so.
    pub(crate) column: Option<String>,
}

type Texts = Box<dyn Iterator<Item = Outcome<String>>>;

impl Source {
    /// Bytes of all files, where each is a plain file.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let sizes = self.files.iter().map(|file| file.metadata().ok().filter(|data| data.is_file()));
        sizes.map(|data| data.map(|data| data.len())).sum()
    }

    /// All texts one after the other; `read` counts the bytes that were taken from the files so far. Files are opened
    /// when their turn comes, but a file that is not there is found out now.
    pub(crate) fn texts(
        self,
        read: &Rc<Cell<u64>>,
    ) -> Outcome<impl Iterator<Item = Outcome<String>> + use<>> {
        for file in self.files.iter().filter(|file| !is_stdin(file)) {
            if let Err(error) = file.metadata() {
                return Err(Failure::of(file.display(), error));
            }
        }
        let read = Rc::clone(read);
        let files = self.files.clone();
        Ok(files.into_iter().flat_map(move |file| {
            self.open(&file, &read).unwrap_or_else(|failure| Box::new(std::iter::once(Err(failure))))
        }))
    }

    fn open(&self, file: &Path, read: &Rc<Cell<u64>>) -> Outcome<Texts> {
        let (name, input): (String, Box<dyn Read>) = match is_stdin(file) {
            true => ("stdin".to_owned(), Box::new(stdin())),
            false => {
                let opened = File::open(file).map_err(|error| Failure::of(file.display(), error))?;
                (file.display().to_string(), Box::new(opened))
            }
        };
        let input = Counting { input, read: Rc::clone(read) };
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let by_name = match ending {
            "jsonl" | "ndjson" => Format::Jsonl,
            "csv" => Format::Csv,
            _ => Format::Text,
        };
        match self.format.unwrap_or(by_name) {
            Format::Text => Ok(Box::new(lines(name, input).map(|line| line.map(|(_, text)| text)))),
            Format::Jsonl => Ok(Box::new(fields(name, input, self.field.clone()))),
            Format::Csv => column(name, input, self.column.as_deref()),
        }
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Lines with what to call them in messages, without their ends.
fn lines(name: String, input: impl Read) -> impl Iterator<Item = Outcome<(String, String)>> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut number = 0u64;
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        number += 1;
        match input.read_until(b'\n', &mut line) {
            Err(error) => return Some(Err(Failure::of(&name, error))),
            Ok(0) => return None,
            Ok(_) => {}
        }
        if line.ends_with(b"\n") {
            line.pop();
            if line.ends_with(b"\r") {
                line.pop();
            }
        }
        let place = format!("{name}:{number}");
        Some(match String::from_utf8(line) {
            Ok(text) => Ok((place, text)),
            Err(error) => Err(Failure::of(place, error.utf8_error())),
        })
    })
}

/// The field of the object on each line; empty lines are passed over.
fn fields(name: String, input: impl Read, field: String) -> impl Iterator<Item = Outcome<String>> {
    let filled =
        lines(name, input).filter(|line| !line.as_ref().is_ok_and(|(_, text)| text.trim().is_empty()));
    filled.map(move |line| {
        let (place, line) = line?;
        let mut value: serde_json::Value =
            serde_json::from_str(&line).map_err(|error| Failure::of(&place, error))?;
        match value.get_mut(&field).map(serde_json::Value::take) {
            Some(serde_json::Value::String(text)) => Ok(text),
            Some(_) => Err(Failure::of(place, format!("field {field:?} is no string"))),
            None => Err(Failure::of(place, format!("there is no field {field:?}; choose one with --field"))),
        }
    })
}

/// The column of that name.
fn column(name: String, input: impl Read + 'static, wanted: Option<&str>) -> Outcome<Texts> {
    let mut reader = csv::Reader::from_reader(input);
    let headers = reader.headers().map_err(|error| Failure::of(&name, error))?.clone();
    let listed = headers.iter().collect::<Vec<_>>().join(", ");
    let index = match wanted {
        Some(wanted) => headers.iter().position(|header| header == wanted).ok_or_else(|| {
            Failure::Usage(format!("{name}: there is no column {wanted:?}; expected one of {listed}"))
        })?,
        None if headers.len() == 1 => 0,
        None => headers.iter().position(|header| header == "text").ok_or_else(|| {
            Failure::Usage(format!("{name}: choose a column with --column: one of {listed}"))
        })?,
    };
    Ok(Box::new(reader.into_records().map(move |record| {
        // The reader refuses records of another length than the header.
        record.map(|record| record[index].to_owned()).map_err(|error| Failure::of(&name, error))
    })))
}

/// Counts what is read.
struct Counting<R> {
    input: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}
