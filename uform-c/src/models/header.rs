//! The header of a safetensors file: eight bytes of length, then JSON that lists the tensors behind it.

use std::collections::BTreeMap;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::ser::{Error, SerializeMap, Serializer};

use crate::base::{Result, err};

use super::source::Blob;

/// The cap of the format on its header.
const LARGEST_HEADER: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;

/// What stands before the tensors of a file.
pub(super) struct Header {
    pub(super) metadata: Metadata,
    /// Where the first tensor begins.
    pub(super) start: u64,
}

impl Header {
    /// Reads the header of a file, and checks it against the file's length.
    pub(super) fn read(name: &str, blob: &Blob) -> Result<Self> {
        let length = blob.length();
        let mut prefix = [0; LENGTH_BYTES as usize];
        if length < LENGTH_BYTES {
            return err!(
                CorruptData,
                "{name}: expected a header of at least {LENGTH_BYTES} bytes, found {length}"
            );
        }
        blob.read(name, 0, &mut prefix)?;
        let header = u64::from_le_bytes(prefix);
        if header > LARGEST_HEADER || header > length - LENGTH_BYTES {
            return err!(
                CorruptData,
                "{name}: the header promises {header} bytes, and the file has {length}"
            );
        }
        let mut bytes = vec![0; header as usize];
        blob.read(name, LENGTH_BYTES, &mut bytes)?;
        let metadata: Metadata = match serde_json::from_slice(&bytes) {
            Ok(metadata) => metadata,
            Err(error) => return err!(CorruptData, "{name}: the header is not one of safetensors: {error}"),
        };
        let header = Self { metadata, start: LENGTH_BYTES + header };
        header.check(name, length)?;
        Ok(header)
    }

    /// An error unless the file has the length that the header promises.
    pub(super) fn check(&self, name: &str, length: u64) -> Result<()> {
        let expected = self.start + self.metadata.data_len() as u64;
        match expected == length {
            true => Ok(()),
            false => err!(CorruptData, "{name}: expected {expected} bytes by its header, found {length}"),
        }
    }
}

/// A tensor that is going to be written.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
}

impl Planned {
    /// Bytes that it takes; nothing where they cannot be counted.
    pub(super) fn bytes(&self) -> Option<usize> {
        let elements = self.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        elements.checked_mul(self.dtype.bitsize() / 8)
    }
}

/// The header of a file with these tensors, without gaps in this order, and texts beside them: the same bytes for the same
/// arguments. It ends where `alignment` bytes begin anew. `Unsupported` when it is longer than the format allows.
pub(super) fn written(
    name: &str,
    texts: &BTreeMap<String, String>,
    tensors: &[Planned],
    alignment: u64,
) -> Result<Vec<u8>> {
    let mut json = Vec::new();
    if let Err(error) = list(texts, tensors, &mut json) {
        return err!(Unsupported, "{name}: its tensors cannot be listed: {error}");
    }
    let end = (LENGTH_BYTES + json.len() as u64).next_multiple_of(alignment);
    if end - LENGTH_BYTES > LARGEST_HEADER {
        let found = json.len();
        return err!(
            Unsupported,
            "{name}: expected files of at most {LARGEST_HEADER} bytes beside the weights, found {found}"
        );
    }
    json.resize((end - LENGTH_BYTES) as usize, b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

fn list(texts: &BTreeMap<String, String>, tensors: &[Planned], json: &mut Vec<u8>) -> serde_json::Result<()> {
    let mut serializer = serde_json::Serializer::new(json);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("__metadata__", texts)?;
    let mut begin = 0usize;
    for tensor in tensors {
        let Some(end) = tensor.bytes().and_then(|bytes| begin.checked_add(bytes)) else {
            return Err(serde_json::Error::custom("more bytes than can be counted"));
        };
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        map.serialize_entry(&tensor.name, &TensorInfo { dtype, shape, data_offsets: (begin, end) })?;
        begin = end;
    }
    map.end()
}
