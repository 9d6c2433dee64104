//! The tensors of safetensors files, by name, converted to f32.
//!
//! Only the header is parsed at first; each tensor is read on its own when it is asked for, in pieces that are converted at
//! once, so that a tensor is never in memory twice: beside the weights that were made already each thread that reads holds
//! the maps of one layer in f32 at most, and one piece of a file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use safetensors::Dtype;

use crate::base::{self, Error, Matrix, Result, Status, err};
use crate::system::memory::Memory;
use crate::system::pages::{ALIGNMENT, Buffer};

use super::header::Header;
use super::json;
use super::packed::{Format, Packed};
use super::source::{Blob, Files, Reading, inside};

/// Bytes of a file that are read at a time.
const PIECE: usize = 256 << 10;

/// The types that weights may have, by their names in the file and ours.
const FLOATS: [(Dtype, base::Dtype); 3] =
    [(Dtype::F32, base::Dtype::F32), (Dtype::F16, base::Dtype::F16), (Dtype::BF16, base::Dtype::Bf16)];

/// All tensors of one directory of a model. Any thread.
pub(super) struct Tensors<'a> {
    files: Vec<(String, Blob<'a>)>,
    places: HashMap<String, Place>,
    taken: Taken,
    /// How the file was packed, where it was.
    format: Option<Format>,
}

/// Counts of the tensors that were asked for.
#[derive(Default)]
struct Taken {
    elements: AtomicU64,
    /// Bytes in the files, by the types of `FLOATS`.
    bytes: [AtomicU64; FLOATS.len()],
    /// Bytes in the files of tensors of other types.
    others: AtomicU64,
}

struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    offset: u64,
    bytes: usize,
}

/// A matrix of f32 in row-major order without gaps, in memory of ours or in a mapped file.
pub(super) struct Table {
    memory: Memory,
    rows: usize,
    columns: usize,
}

impl<'a> Tensors<'a> {
    /// Opens `model.safetensors` of that folder (which ends in a slash or is empty), or the shards that
    /// `model.safetensors.index.json` names.
    pub(super) fn open(files: &Files<'a>, folder: &str, reading: Reading) -> Result<Self> {
        files.note(folder);
        if let Some(packed) = files.packed() {
            return Self::of_packed(packed, folder, reading);
        }
        let mut tensors =
            Self { files: Vec::new(), places: HashMap::new(), taken: Taken::default(), format: None };
        let single = format!("{folder}model.safetensors");
        if let Some(blob) = files.blob(&single, reading)? {
            tensors.add(single, blob)?;
            return Ok(tensors);
        }
        let index = format!("{folder}model.safetensors.index.json");
        if let Some(bytes) = files.text(&index)? {
            tensors.add_shards(files, folder, &index, &bytes, reading)?;
            return Ok(tensors);
        }
        let pickled = format!("{folder}pytorch_model.bin");
        match files.has(&pickled) {
            true => {
                err!(Unsupported, "{single}: no such file; {pickled} is there, but only safetensors is read")
            }
            false => err!(NotFound, "{single}: no such file in {}", files.place()),
        }
    }

    /// The tensors of that folder in a packed file, where its name stands before theirs.
    fn of_packed(packed: &Packed<'a>, folder: &str, reading: Reading) -> Result<Self> {
        let mut tensors = Self {
            files: Vec::new(),
            places: HashMap::new(),
            taken: Taken::default(),
            format: Some(packed.format().within(folder)),
        };
        let inside =
            |name: &str| name.strip_prefix(folder).filter(|rest| !rest.contains('/')).map(str::to_owned);
        tensors.list(packed.name().to_owned(), packed.blob(reading)?, packed.header(), inside)?;
        Ok(tensors)
    }

    fn add_shards(
        &mut self,
        files: &Files<'a>,
        folder: &str,
        index: &str,
        bytes: &[u8],
        reading: Reading,
    ) -> Result<()> {
        let keys = json::Keys::parse(index, bytes)?;
        let map = match keys.get("weight_map") {
            Some(serde_json::Value::Object(map)) => map.clone(),
            _ => return err!(CorruptData, "{index}: weight_map: expected an object of tensors and files"),
        };
        let mut wanted: HashMap<String, String> = HashMap::new();
        for (tensor, shard) in map {
            let Some(shard) = shard.as_str() else {
                return err!(
                    CorruptData,
                    "{index}: weight_map: {tensor}: expected a file, found {}",
                    json::shown(&shard)
                );
            };
            inside(shard).map_err(|error| Error::new(error.status, format!("{index}: {tensor}: {error}")))?;
            let name = format!("{folder}{shard}");
            if !self.files.iter().any(|(known, _)| *known == name) {
                let Some(blob) = files.blob(&name, reading)? else {
                    return err!(NotFound, "{name}: no such file; {index} expects {tensor} there");
                };
                self.add(name.clone(), blob)?;
            }
            wanted.insert(tensor, name);
        }
        for (tensor, name) in &wanted {
            let found = self.places.get(tensor).map(|place| self.files[place.file].0.as_str());
            if found != Some(name) {
                let found = found.unwrap_or("no file");
                return err!(CorruptData, "{index}: {tensor}: expected in {name}, found in {found}");
            }
        }
        self.places.retain(|tensor, _| wanted.contains_key(tensor));
        Ok(())
    }

    /// Reads the header of one file and takes in what it lists.
    fn add(&mut self, name: String, blob: Blob<'a>) -> Result<()> {
        let header = Header::read(&name, &blob)?;
        self.list(name, blob, &header, |name| Some(name.to_owned()))
    }

    /// Takes in the tensors of a file that `named` has a name for.
    fn list(
        &mut self,
        name: String,
        blob: Blob<'a>,
        header: &Header,
        named: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let file = self.files.len();
        for (tensor, info) in header.metadata.tensors() {
            let Some(own) = named(&tensor) else { continue };
            let (begin, end) = info.data_offsets;
            let place = Place {
                file,
                dtype: info.dtype,
                shape: info.shape.clone(),
                offset: header.start + begin as u64,
                bytes: end - begin,
            };
            if self.places.insert(own, place).is_some() {
                return err!(CorruptData, "{name}: {tensor}: expected in one file, found in two");
            }
        }
        self.files.push((name, blob));
        Ok(())
    }

    /// How the file was packed, where it was.
    pub(super) fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// The names of all tensors of floating point types.
    pub(super) fn floats(&self) -> impl Iterator<Item = &str> {
        let floats =
            self.places.iter().filter(|(_, place)| FLOATS.iter().any(|(dtype, _)| *dtype == place.dtype));
        floats.map(|(name, _)| &name[..])
    }

    /// Whether there is a tensor of that name.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.places.contains_key(tensor)
    }

    /// The file of the first tensor, for messages about tensors that are not there.
    pub(super) fn file(&self) -> &str {
        self.files.first().map_or("model.safetensors", |(name, _)| name)
    }

    /// The type that most bytes have of the tensors that were asked for, or that the file was packed in.
    pub(super) fn main_dtype(&self) -> base::Dtype {
        if let Some(format) = &self.format {
            return format.dtype;
        }
        let bytes =
            |(index, _): &(usize, &(Dtype, base::Dtype))| self.taken.bytes[*index].load(Ordering::Relaxed);
        // Of equals the last one counts, which is f32 when counted backwards.
        FLOATS.iter().enumerate().rev().max_by_key(bytes).map_or(base::Dtype::F32, |(_, (_, dtype))| *dtype)
    }

    /// The floating point type that takes most bytes of the files, or the type that the file was packed in.
    pub(super) fn stored_dtype(&self) -> base::Dtype {
        if let Some(format) = &self.format {
            return format.dtype;
        }
        let bytes = |(stored, _): &&(Dtype, base::Dtype)| {
            let of_type = self.places.values().filter(|place| place.dtype == *stored);
            of_type.map(|place| place.bytes as u64).sum::<u64>()
        };
        // Of equals the last one counts, which is f32 when counted backwards.
        FLOATS.iter().rev().max_by_key(bytes).map_or(base::Dtype::F32, |(_, dtype)| *dtype)
    }

    /// How many numbers the tensors have that were asked for: the parameters of what was made of them.
    pub(super) fn taken(&self) -> u64 {
        self.taken.elements.load(Ordering::Relaxed)
    }

    /// Bytes in the files of the tensors that were asked for.
    pub(super) fn taken_bytes(&self) -> u64 {
        let bytes = self.taken.bytes.iter().chain([&self.taken.others]);
        bytes.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in the files of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.places.values().map(|place| place.bytes as u64).sum()
    }

    /// Where a tensor of exactly that shape and one of these types is, which stands for so many learned numbers.
    fn take(&self, tensor: &str, shape: &[usize], accepted: &[Dtype], parameters: usize) -> Result<&Place> {
        let Some(place) = self.places.get(tensor) else {
            return err!(
                CorruptData,
                "{}: {tensor}: expected a tensor of {shape:?}, found none",
                self.file()
            );
        };
        let (file, found) = (&self.files[place.file].0, place.dtype);
        if place.shape != shape {
            return err!(
                CorruptData,
                "{file}: {tensor}: expected a tensor of {shape:?}, found {:?}",
                place.shape
            );
        }
        match accepted {
            _ if accepted.contains(&found) => {}
            [only] => return err!(CorruptData, "{file}: {tensor}: expected {only:?}, found {found:?}"),
            _ => return err!(Unsupported, "{file}: {tensor}: expected F32, F16 or BF16, found {found:?}"),
        }
        self.taken.elements.fetch_add(parameters as u64, Ordering::Relaxed);
        let float = FLOATS.iter().position(|(dtype, _)| *dtype == found);
        let bytes = float.map_or(&self.taken.others, |float| &self.taken.bytes[float]);
        bytes.fetch_add(place.bytes as u64, Ordering::Relaxed);
        Ok(place)
    }

    /// Where a tensor of exactly that shape is whose numbers were learned.
    fn take_floats(&self, tensor: &str, shape: &[usize]) -> Result<&Place> {
        self.take(tensor, shape, &FLOATS.map(|(dtype, _)| dtype), shape.iter().product())
    }

    /// Reads the values of the tensor at that place, which has one of the types of `FLOATS`, or I8.
    fn read(&self, place: &Place, output: &mut [f32]) -> Result<()> {
        let (name, blob) = &self.files[place.file];
        if place.dtype == Dtype::F32 {
            // SAFETY: the bytes are those of the slice, and any bits are a float.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(output.as_mut_ptr().cast(), size_of_val(output)) };
            blob.read(name, place.offset, bytes)?;
            output.iter_mut().for_each(|value| *value = f32::from_bits(u32::from_le(value.to_bits())));
            return Ok(());
        }
        let width = place.dtype.bitsize() / 8;
        let mut piece = vec![0; PIECE.min(output.len() * width)];
        let mut offset = place.offset;
        for values in output.chunks_mut(PIECE / width) {
            let bytes = &mut piece[..values.len() * width];
            blob.read(name, offset, bytes)?;
            offset += bytes.len() as u64;
            match place.dtype {
                Dtype::F16 => {
                    let twos = bytes.as_chunks().0.iter();
                    values
                        .iter_mut()
                        .zip(twos)
                        .for_each(|(value, two)| *value = f16::from_le_bytes(*two).to_f32());
                }
                Dtype::I8 => {
                    values.iter_mut().zip(bytes).for_each(|(value, byte)| *value = f32::from(*byte as i8));
                }
                _ => {
                    let twos = bytes.as_chunks().0.iter();
                    values
                        .iter_mut()
                        .zip(twos)
                        .for_each(|(value, two)| *value = bf16::from_le_bytes(*two).to_f32());
                }
            }
        }
        Ok(())
    }

    fn values(&self, tensor: &str, place: &Place) -> Result<Vec<f32>> {
        let count = place.shape.iter().product();
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| {
            Error::new(Status::OutOfMemory, format!("{tensor}: {count} numbers could not be had"))
        })?;
        values.resize(count, 0.0);
        self.read(place, &mut values)?;
        Ok(values)
    }

    /// A vector of that many elements.
    pub(super) fn vector(&self, tensor: &str, elements: usize) -> Result<Vec<f32>> {
        self.values(tensor, self.take_floats(tensor, &[elements])?)
    }

    /// A matrix of that shape, in memory of ours.
    pub(super) fn matrix(&self, tensor: &str, rows: usize, columns: usize) -> Result<Vec<f32>> {
        self.values(tensor, self.take_floats(tensor, &[rows, columns])?)
    }

    /// A matrix of whole numbers within ±127, in memory of ours.
    pub(super) fn numbers(&self, tensor: &str, rows: usize, columns: usize) -> Result<Vec<f32>> {
        let place = self.take(tensor, &[rows, columns], &[Dtype::I8], rows * columns)?;
        let numbers = self.values(tensor, place)?;
        match numbers.iter().all(|number| *number >= -127.0) {
            true => Ok(numbers),
            false => {
                let file = &self.files[place.file].0;
                err!(CorruptData, "{file}: {tensor}: expected numbers within 127 of zero, found -128")
            }
        }
    }

    /// So many factors of numbers that were learned.
    pub(super) fn scales(&self, tensor: &str, elements: usize) -> Result<Vec<f32>> {
        self.values(tensor, self.take(tensor, &[elements], &[Dtype::F32], 0)?)
    }

    /// So many sums of numbers that were learned.
    pub(super) fn sums(&self, tensor: &str, elements: usize) -> Result<Vec<i32>> {
        let place = self.take(tensor, &[elements], &[Dtype::I32], 0)?;
        let (name, blob) = &self.files[place.file];
        let mut bytes = vec![0; place.bytes];
        blob.read(name, place.offset, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|four| i32::from_le_bytes(*four)).collect())
    }

    /// Words that stand for so many learned numbers: in the mapped file where they are aligned as memory of ours is, else in
    /// such memory, spread over `domains` (none: where it is first touched).
    pub(super) fn words(
        &self,
        tensor: &str,
        shape: &[usize],
        parameters: usize,
        domains: &[i32],
    ) -> Result<Memory> {
        let place = self.take(tensor, shape, &[Dtype::U32], parameters)?;
        let (name, blob) = &self.files[place.file];
        if let Some(memory) = blob.memory(place.offset, place.bytes, ALIGNMENT) {
            return Ok(memory);
        }
        let mut memory = Buffer::new(place.bytes, domains)?;
        blob.read(name, place.offset, memory.as_mut_slice())?;
        Ok(memory.into())
    }

    /// A matrix of that shape that stays in row-major order: in the mapped file where that serves as it is, else in memory
    /// spread over `domains` (none: where it is first touched).
    pub(super) fn table(&self, tensor: &str, rows: usize, columns: usize, domains: &[i32]) -> Result<Table> {
        let place = self.take_floats(tensor, &[rows, columns])?;
        let blob = &self.files[place.file].1;
        if place.dtype == Dtype::F32
            && let Some(memory) = blob.memory(place.offset, place.bytes, align_of::<f32>())
        {
            return Ok(Table { memory, rows, columns });
        }
        let bytes = rows.saturating_mul(columns).saturating_mul(size_of::<f32>());
        let mut memory = Buffer::new(bytes, domains)?;
        self.read(place, &mut memory.as_mut_floats()[..rows * columns])?;
        Ok(Table { memory: memory.into(), rows, columns })
    }

    /// The type and shape of a floating point tensor, of that shape where one is given.
    pub(super) fn shape(&self, tensor: &str, expected: Option<&[usize]>) -> Result<(Dtype, &[usize])> {
        let found = self.places.get(tensor).map(|place| &place.shape[..]);
        let place = self.take_floats(tensor, expected.or(found).unwrap_or(&[]))?;
        Ok((place.dtype, &place.shape))
    }

    /// Gives the bytes of a tensor to `each`, as they are in the file, piece by piece.
    pub(super) fn copy(&self, tensor: &str, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Some(place) = self.places.get(tensor) else {
            return err!(CorruptData, "{}: {tensor}: expected a tensor, found none", self.file());
        };
        let (name, blob) = &self.files[place.file];
        let mut piece = vec![0; PIECE.min(place.bytes)];
        let mut done = 0;
        while done < place.bytes {
            let bytes = &mut piece[..PIECE.min(place.bytes - done)];
            blob.read(name, place.offset + done as u64, bytes)?;
            each(bytes)?;
            done += bytes.len();
        }
        Ok(())
    }
}

impl Table {
    /// Its rows.
    pub(super) fn matrix(&self) -> Matrix<'_, f32> {
        let values = &self.memory.as_floats()[..self.rows * self.columns];
        Matrix::dense(values, self.rows, self.columns)
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let matrix = self.matrix();
        (matrix.rows() * matrix.columns() * size_of::<f32>()) as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::models::source::Source;

    /// A safetensors file with these tensors.
    pub(in crate::models) fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn bytes_of(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn open<'a>(files: &'a [(&'a str, &'a [u8])]) -> Result<Tensors<'a>> {
        Tensors::open(&Files::find(Source::Files(files))?, "", Reading::Sequential)
    }

    #[test]
    fn every_float_type_becomes_f32() {
        let values = [1.0f32, -0.5, 65504.0, 2.0];
        let half: Vec<u8> = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        let brain: Vec<u8> =
            [1.0f32, -0.5].iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
        let data = file(&[
            ("a", Dtype::F32, &[2, 2], bytes_of(&values)),
            ("b", Dtype::F16, &[4], half),
            ("c", Dtype::BF16, &[2], brain),
            ("d", Dtype::I64, &[1], vec![0; 8]),
        ]);
        let files = [("model.safetensors", &data[..])];
        let tensors = open(&files).unwrap();
        assert_eq!(tensors.matrix("a", 2, 2).unwrap(), values);
        assert_eq!(tensors.vector("b", 4).unwrap(), values);
        assert_eq!(tensors.vector("c", 2).unwrap(), [1.0, -0.5]);
        assert_eq!(tensors.vector("d", 1).unwrap_err().status, Status::Unsupported);
        assert_eq!(tensors.table("b", 2, 2, &[]).err().unwrap().status, Status::CorruptData);
        let table = tensors.table("a", 2, 2, &[]).unwrap();
        assert_eq!((table.matrix().row(1), table.bytes()), (&values[2..], 16));
        // One was read twice, and the one of another type not at all.
        assert_eq!((tensors.taken(), tensors.taken_bytes(), tensors.bytes()), (14, 44, 36));
        assert_eq!(tensors.main_dtype(), base::Dtype::F32);
        for error in [tensors.vector("a", 4).unwrap_err(), tensors.vector("e", 4).unwrap_err()] {
            assert_eq!(error.status, Status::CorruptData);
            assert!(
                error.message.contains("model.safetensors: ") && error.message.contains("[4]"),
                "{error}"
            );
        }
    }

    #[test]
    fn long_tensors_are_read_in_pieces() {
        let count = PIECE + 3;
        let values: Vec<f32> = (0..count).map(|index| (index % 2048) as f32).collect();
        let half = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        let data = file(&[("a", Dtype::F32, &[count], bytes_of(&values)), ("b", Dtype::F16, &[count], half)]);
        let files = [("model.safetensors", &data[..])];
        let tensors = open(&files).unwrap();
        assert!(tensors.vector("a", count).unwrap() == values);
        assert!(tensors.vector("b", count).unwrap() == values);
    }

    #[test]
    fn the_type_of_the_weights_is_that_of_what_is_read() {
        let half = |count: usize| vec![0; 2 * count];
        let data = file(&[("a", Dtype::F16, &[4], half(4)), ("ids", Dtype::I64, &[100], vec![0; 800])]);
        let files = [("model.safetensors", &data[..])];
        let tensors = open(&files).unwrap();
        tensors.vector("a", 4).unwrap();
        assert_eq!(tensors.main_dtype(), base::Dtype::F16);
    }

    #[test]
    fn lying_headers_are_errors() {
        let good = file(&[("a", Dtype::F32, &[2], bytes_of(&[1.0, 2.0]))]);
        let mut promises_more = good.clone();
        promises_more[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut longer = good.clone();
        longer.push(0);
        for bad in [&good[..good.len() - 1], &good[..7], &[], &promises_more, &longer] {
            let files = [("model.safetensors", bad)];
            let error = open(&files).err().unwrap();
            assert_eq!(error.status, Status::CorruptData);
            assert!(error.message.contains("model.safetensors"), "{error}");
        }
    }

    #[test]
    fn shards_come_from_the_index() {
        let one = file(&[("a", Dtype::F32, &[1], bytes_of(&[1.0]))]);
        let two = file(&[("b", Dtype::F32, &[1], bytes_of(&[2.0]))]);
        let open_with = |index: &str| {
            let files = [
                ("model.safetensors.index.json", index.as_bytes()),
                ("one.safetensors", &one[..]),
                ("two.safetensors", &two[..]),
            ];
            open(&files).map(|tensors| (tensors.vector("a", 1).unwrap(), tensors.vector("b", 1).unwrap()))
        };
        let good = r#"{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}"#;
        assert_eq!(open_with(good).unwrap(), (vec![1.0], vec![2.0]));
        for bad in [
            r#"{"weight_map": {"a": "../one.safetensors"}}"#,
            r#"{"weight_map": {"a": "/etc/passwd"}}"#,
            r#"{"weight_map": {"a": "three.safetensors"}}"#,
            r#"{"weight_map": {"b": "one.safetensors"}}"#,
            r#"{"weight_map": {"a": 3}}"#,
            r#"{"weight_map": []}"#,
            "{}",
        ] {
            assert!(open_with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_safetensors_is_read() {
        let files = [("pytorch_model.bin", &b""[..])];
        let error = open(&files).err().unwrap();
        assert_eq!(error.status, Status::Unsupported);
        assert!(error.message.contains("only safetensors is read"), "{error}");
    }
}
