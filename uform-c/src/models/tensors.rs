//! The tensors of safetensors files, by name, converted to f32.
//!
//! Only the header is parsed at first; each tensor is read on its own when it is asked for, in pieces that are converted at
//! once, so that a tensor is never in memory twice: beside the weights that were made already each thread that reads holds
//! the maps of one layer in f32 at most, and one piece of a file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::base::{self, Error, Matrix, Result, Status, err};
use crate::system::pages::Buffer;

use super::json;
use super::source::{Blob, Files, Reading, inside};

/// The cap of the safetensors format on its header.
const LARGEST_HEADER: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;

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
}

/// Counts of the tensors that were asked for.
#[derive(Default)]
struct Taken {
    elements: AtomicU64,
    /// Bytes in the files, by the types of `FLOATS`.
    bytes: [AtomicU64; FLOATS.len()],
}

struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    offset: u64,
    bytes: usize,
}

/// A matrix of f32 in row-major order without gaps.
pub(super) enum Table {
    /// In memory of ours.
    Owned { memory: Buffer, rows: usize, columns: usize },
    /// In the mapped file, whose type and alignment allowed it.
    #[cfg(not(target_family = "wasm"))]
    Mapped { map: std::sync::Arc<memmap2::Mmap>, offset: usize, rows: usize, columns: usize },
}

impl<'a> Tensors<'a> {
    /// Opens `model.safetensors` of that folder (which ends in a slash or is empty), or the shards that
    /// `model.safetensors.index.json` names.
    pub(super) fn open(files: &Files<'a>, folder: &str, reading: Reading) -> Result<Self> {
        let mut tensors = Self { files: Vec::new(), places: HashMap::new(), taken: Taken::default() };
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
        let length = blob.length();
        let mut prefix = [0; LENGTH_BYTES as usize];
        if length < LENGTH_BYTES {
            return err!(
                CorruptData,
                "{name}: expected a header of at least {LENGTH_BYTES} bytes, found {length}"
            );
        }
        blob.read(&name, 0, &mut prefix)?;
        let header = u64::from_le_bytes(prefix);
        if header > LARGEST_HEADER || header > length - LENGTH_BYTES {
            return err!(
                CorruptData,
                "{name}: the header promises {header} bytes, and the file has {length}"
            );
        }
        let mut bytes = vec![0; header as usize];
        blob.read(&name, LENGTH_BYTES, &mut bytes)?;
        let metadata: Metadata = match serde_json::from_slice(&bytes) {
            Ok(metadata) => metadata,
            Err(error) => return err!(CorruptData, "{name}: the header is not one of safetensors: {error}"),
        };
        let start = LENGTH_BYTES + header;
        let expected = start + metadata.data_len() as u64;
        if expected != length {
            return err!(CorruptData, "{name}: expected {expected} bytes by its header, found {length}");
        }
        let file = self.files.len();
        for (tensor, info) in metadata.tensors() {
            let (begin, end) = info.data_offsets;
            let place = Place {
                file,
                dtype: info.dtype,
                shape: info.shape.clone(),
                offset: start + begin as u64,
                bytes: end - begin,
            };
            if self.places.insert(tensor.clone(), place).is_some() {
                return err!(CorruptData, "{name}: {tensor}: expected in one file, found in two");
            }
        }
        self.files.push((name, blob));
        Ok(())
    }

    /// Whether there is a tensor of that name.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.places.contains_key(tensor)
    }

    /// The file of the first tensor, for messages about tensors that are not there.
    pub(super) fn file(&self) -> &str {
        self.files.first().map_or("model.safetensors", |(name, _)| name)
    }

    /// The type that most bytes have of the tensors that were asked for.
    pub(super) fn main_dtype(&self) -> base::Dtype {
        let bytes =
            |(index, _): &(usize, &(Dtype, base::Dtype))| self.taken.bytes[*index].load(Ordering::Relaxed);
        // Of equals the last one counts, which is f32 when counted backwards.
        FLOATS.iter().enumerate().rev().max_by_key(bytes).map_or(base::Dtype::F32, |(_, (_, dtype))| *dtype)
    }

    /// The floating point type that takes most bytes of the files.
    pub(super) fn stored_dtype(&self) -> base::Dtype {
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
        self.taken.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in the files of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.places.values().map(|place| place.bytes as u64).sum()
    }

    /// Where a tensor of exactly that shape is.
    fn take(&self, tensor: &str, shape: &[usize]) -> Result<&Place> {
        let Some(place) = self.places.get(tensor) else {
            return err!(
                CorruptData,
                "{}: {tensor}: expected a tensor of {shape:?}, found none",
                self.file()
            );
        };
        if place.shape != shape {
            let file = &self.files[place.file].0;
            return err!(
                CorruptData,
                "{file}: {tensor}: expected a tensor of {shape:?}, found {:?}",
                place.shape
            );
        }
        let Some(float) = FLOATS.iter().position(|(dtype, _)| *dtype == place.dtype) else {
            let (file, found) = (&self.files[place.file].0, place.dtype);
            return err!(Unsupported, "{file}: {tensor}: expected F32, F16 or BF16, found {found:?}");
        };
        self.taken.elements.fetch_add(shape.iter().product::<usize>() as u64, Ordering::Relaxed);
        self.taken.bytes[float].fetch_add(place.bytes as u64, Ordering::Relaxed);
        Ok(place)
    }

    /// Reads the values of the tensor at that place, which has one of the types of `FLOATS`.
    fn read(&self, place: &Place, output: &mut [f32]) -> Result<()> {
        let (name, blob) = &self.files[place.file];
        let width = if place.dtype == Dtype::F32 { 4 } else { 2 };
        let mut piece = vec![0; PIECE.min(output.len() * width)];
        let mut offset = place.offset;
        for values in output.chunks_mut(PIECE / width) {
            let bytes = &mut piece[..values.len() * width];
            blob.read(name, offset, bytes)?;
            offset += bytes.len() as u64;
            match place.dtype {
                Dtype::F32 => {
                    let fours = bytes.as_chunks().0.iter();
                    values.iter_mut().zip(fours).for_each(|(value, four)| *value = f32::from_le_bytes(*four));
                }
                Dtype::F16 => {
                    let twos = bytes.as_chunks().0.iter();
                    values
                        .iter_mut()
                        .zip(twos)
                        .for_each(|(value, two)| *value = f16::from_le_bytes(*two).to_f32());
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

    fn values(&self, tensor: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let place = self.take(tensor, shape)?;
        let count = shape.iter().product();
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
        self.values(tensor, &[elements])
    }

    /// A matrix of that shape, in memory of ours.
    pub(super) fn matrix(&self, tensor: &str, rows: usize, columns: usize) -> Result<Vec<f32>> {
        self.values(tensor, &[rows, columns])
    }

    /// A matrix of that shape that stays in row-major order: in the mapped file where that serves as it is, else in memory
    /// spread over `domains` (none: where it is first touched).
    pub(super) fn table(&self, tensor: &str, rows: usize, columns: usize, domains: &[i32]) -> Result<Table> {
        let place = self.take(tensor, &[rows, columns])?;
        #[cfg(not(target_family = "wasm"))]
        if let Blob::Map(map) = &self.files[place.file].1
            && place.dtype == Dtype::F32
            && place.offset.is_multiple_of(align_of::<f32>() as u64)
            && cfg!(target_endian = "little")
        {
            return Ok(Table::Mapped { map: map.clone(), offset: place.offset as usize, rows, columns });
        }
        let bytes = rows.saturating_mul(columns).saturating_mul(size_of::<f32>());
        let mut memory = Buffer::new(bytes, domains)?;
        self.read(place, &mut memory.as_mut_floats()[..rows * columns])?;
        Ok(Table::Owned { memory, rows, columns })
    }
}

impl Table {
    /// Its rows.
    pub(super) fn matrix(&self) -> Matrix<'_, f32> {
        match self {
            Self::Owned { memory, rows, columns } => {
                Matrix::dense(&memory.as_floats()[..rows * columns], *rows, *columns)
            }
            #[cfg(not(target_family = "wasm"))]
            Self::Mapped { map, offset, rows, columns } => {
                let bytes = &map[*offset..*offset + rows * columns * size_of::<f32>()];
                // SAFETY: the slice was just checked to have that many bytes; a map starts at a page and the offset
                // was checked to be a multiple of the alignment; any bits are a value of f32.
                let values = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), rows * columns) };
                Matrix::dense(values, *rows, *columns)
            }
        }
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
