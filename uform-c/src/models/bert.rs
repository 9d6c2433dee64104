//! BERT and the encoders with the same graph: post-norm layers over absolute positions.
//!
//! Reference: `BertModel`, `RobertaModel`, `XLMRobertaModel` and `DistilBertModel` of `transformers` 5 without their
//! pooling heads; "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805. Rows are ragged: the tokens
//! of all texts of a block stand one behind the other, and attention keeps to the text of its own.

use crate::base::{Dtype, Matrix, MatrixMut, Result, err};
use crate::executors::Context;
use crate::kernels::activation::Activation;
use crate::kernels::attention::{attention_scratch_len, packed_head_len};
use crate::ops::attention::attention;
use crate::ops::embed::embed;
use crate::ops::linear::{Linear, Packing};
use crate::ops::norm::layer_norm;

use super::config::{Positions, Shape};
use super::loading::{Loading, Part, Slot};
use super::tensors::{Table, Tensors};
use super::weights::Map;

/// The spelling of one architecture: keys of its configuration and names of its tensors.
pub(super) struct Layout {
    pub(super) hidden_key: &'static str,
    pub(super) layers_key: &'static str,
    pub(super) heads_key: &'static str,
    pub(super) intermediate_key: &'static str,
    pub(super) activation_key: &'static str,
    /// The key of the layer norms' epsilon, where it is not fixed to 1e-12.
    pub(super) epsilon_key: Option<&'static str>,
    pub(super) default_vocabulary: usize,
    pub(super) default_layers: usize,
    /// The padding token behind which positions start, where they do.
    pub(super) default_padding: Option<u32>,
    /// Whether there is a table of token types, and the tokenizer's types are given to it.
    pub(super) token_types: bool,
    /// Whether the tokenizer's token types are used, or all are zero.
    pub(super) types_from_tokenizer: bool,
    /// What stands before the names in a file that holds a head as well.
    prefix: &'static str,
    layer: &'static str,
    names: &'static LayerNames,
}

struct LayerNames {
    query: &'static str,
    key: &'static str,
    value: &'static str,
    attention_output: &'static str,
    attention_norm: &'static str,
    intermediate: &'static str,
    output: &'static str,
    output_norm: &'static str,
}

const BERT_NAMES: LayerNames = LayerNames {
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attention_output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_norm: "output.LayerNorm",
};

/// `BertModel`.
pub(super) const BERT: Layout = Layout {
    hidden_key: "hidden_size",
    layers_key: "num_hidden_layers",
    heads_key: "num_attention_heads",
    intermediate_key: "intermediate_size",
    activation_key: "hidden_act",
    epsilon_key: Some("layer_norm_eps"),
    default_vocabulary: 30522,
    default_layers: 12,
    default_padding: None,
    token_types: true,
    types_from_tokenizer: true,
    prefix: "bert.",
    layer: "encoder.layer.",
    names: &BERT_NAMES,
};

/// `RobertaModel` and `XLMRobertaModel`, which are the same graph under two names.
pub(super) const ROBERTA: Layout = Layout {
    default_vocabulary: 50265,
    default_padding: Some(1),
    types_from_tokenizer: false,
    prefix: "roberta.",
    ..BERT
};

/// `DistilBertModel`.
pub(super) const DISTILBERT: Layout = Layout {
    hidden_key: "dim",
    layers_key: "n_layers",
    heads_key: "n_heads",
    intermediate_key: "hidden_dim",
    activation_key: "activation",
    epsilon_key: None,
    default_layers: 6,
    token_types: false,
    types_from_tokenizer: false,
    prefix: "distilbert.",
    layer: "transformer.layer.",
    names: &LayerNames {
        query: "attention.q_lin",
        key: "attention.k_lin",
        value: "attention.v_lin",
        attention_output: "attention.out_lin",
        attention_norm: "sa_layer_norm",
        intermediate: "ffn.lin1",
        output: "ffn.lin2",
        output_norm: "output_layer_norm",
    },
    ..BERT
};

/// The weights of one model, packed for the kernels.
pub(super) struct Encoder {
    shape: Shape,
    dtype: Dtype,
    words: Table,
    positions: Table,
    types: Option<Table>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

impl Layer {
    fn maps(&self) -> [&Linear; 4] {
        [&self.query_key_value, &self.attention_output, &self.intermediate, &self.output]
    }
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// The tokens of a block of texts, one text behind the other.
pub(super) struct Ragged<'a> {
    pub(super) ids: &'a [u32],
    pub(super) types: &'a [u32],
    /// Where each text starts, and behind the last one where it ends.
    pub(super) starts: &'a [usize],
}

/// Bytes that a loan of `rows` × `columns` elements of four bytes takes. In a type that the sizes of no call overflow.
pub(super) fn scratch_bytes(rows: usize, columns: usize) -> u128 {
    (rows as u128 * columns as u128 * size_of::<f32>() as u128).next_multiple_of(64).max(64)
}

/// Names in a file: with which prefix, and in the spelling of which layer norm.
struct Reader<'t> {
    tensors: &'t Tensors<'t>,
    prefix: &'static str,
    shape: &'t Shape,
    /// The type that linear layers are packed in.
    dtype: Dtype,
    /// The memory domains that weights are spread over.
    domains: &'t [i32],
}

/// The tensors of an encoder.
pub(super) struct Contents {
    /// Those of linear layers, but for their biases.
    pub(super) maps: Vec<Map>,
    /// All others, with their shapes.
    pub(super) others: Vec<(String, Vec<usize>)>,
}

impl Reader<'_> {
    fn name(&self, name: &str, part: &str) -> String {
        format!("{}{name}.{part}", self.prefix)
    }

    fn table(&self, name: &str, rows: usize) -> Result<Table> {
        self.tensors.table(&self.name(name, "weight"), rows, self.shape.hidden, self.domains)
    }

    /// The vectors of a layer norm, which were called gamma and beta in TensorFlow's checkpoints.
    fn norm_names(&self, name: &str) -> [String; 2] {
        [("weight", "gamma"), ("bias", "beta")].map(|(part, old)| {
            let (new, old) = (self.name(name, part), self.name(name, old));
            if self.tensors.has(&old) && !self.tensors.has(&new) { old } else { new }
        })
    }

    fn norm(&self, name: &str) -> Result<Norm> {
        let [weight, bias] = self.norm_names(name);
        let vector = |name: &str| self.tensors.vector(name, self.shape.hidden);
        Ok(Norm { weight: vector(&weight)?, bias: vector(&bias)? })
    }

    /// The linear layers of a layer, in the order of [`Layer::maps`].
    fn maps(&self, layout: &Layout, index: usize) -> [Map; 4] {
        let (hidden, intermediate) = (self.shape.hidden, self.shape.intermediate);
        let names = layout.names;
        let packing = Packing::from(self.dtype);
        // What attention mixes has no channel far above the others.
        let mixed = Packing { rotated: false, ..packing };
        let map = |packing, names: &[&str], outputs, inputs| Map {
            names: names
                .iter()
                .map(|name| format!("{}{}{index}.{name}", self.prefix, layout.layer))
                .collect(),
            packing,
            outputs,
            inputs,
        };
        [
            map(packing, &[names.query, names.key, names.value], hidden, hidden),
            map(mixed, &[names.attention_output], hidden, hidden),
            map(packing, &[names.intermediate], intermediate, hidden),
            map(packing, &[names.output], hidden, intermediate),
        ]
    }

    fn layer(&self, layout: &Layout, index: usize) -> Result<Layer> {
        let read = |map: &Map| map.read(self.tensors, self.domains);
        let norm = |name: &str| self.norm(&format!("{}{index}.{name}", layout.layer));
        let [query_key_value, attention_output, intermediate, output] = &self.maps(layout, index);
        Ok(Layer {
            query_key_value: read(query_key_value)?,
            attention_output: read(attention_output)?,
            attention_norm: norm(layout.names.attention_norm)?,
            intermediate: read(intermediate)?,
            output: read(output)?,
            output_norm: norm(layout.names.output_norm)?,
        })
    }

    fn contents(&self, layout: &Layout) -> Contents {
        let hidden = self.shape.hidden;
        let mut tables = vec![
            ("embeddings.word_embeddings", self.shape.vocabulary),
            ("embeddings.position_embeddings", self.shape.position_rows),
        ];
        if layout.token_types {
            tables.push(("embeddings.token_type_embeddings", self.shape.token_types));
        }
        let tables = tables.into_iter().map(|(name, rows)| (self.name(name, "weight"), vec![rows, hidden]));
        let mut norms = vec!["embeddings.LayerNorm".to_owned()];
        let mut maps = Vec::new();
        for index in 0..self.shape.layers {
            let own = [layout.names.attention_norm, layout.names.output_norm];
            norms.extend(own.map(|name| format!("{}{index}.{name}", layout.layer)));
            maps.extend(self.maps(layout, index));
        }
        let norms = norms.iter().flat_map(|name| self.norm_names(name)).map(|name| (name, vec![hidden]));
        let others = tables.chain(norms).chain(maps.iter().flat_map(Map::biases)).collect();
        Contents { maps, others }
    }
}

/// The prefix under which the tensors stand: none, that of a model with a head, or that of a saved module of
/// sentence-transformers.
fn find_prefix(tensors: &Tensors, layout: &Layout) -> Result<&'static str> {
    let probe = "embeddings.word_embeddings.weight";
    let candidates = ["", layout.prefix, "0.auto_model.", "auto_model."];
    match candidates.into_iter().find(|prefix| tensors.has(&format!("{prefix}{probe}"))) {
        Some(prefix) => Ok(prefix),
        None => err!(
            CorruptData,
            "{}: expected {probe} or {}{probe}, found neither",
            tensors.file(),
            layout.prefix
        ),
    }
}

/// The tensors of an encoder of that shape, whose matrices are going to be in `dtype`.
pub(super) fn contents(shape: &Shape, layout: &Layout, tensors: &Tensors, dtype: Dtype) -> Result<Contents> {
    let prefix = find_prefix(tensors, layout)?;
    Ok(Reader { tensors, prefix, shape, dtype, domains: &[] }.contents(layout))
}

impl Encoder {
    /// Reads the weights, their matrices in `dtype`, and `beside` them something that takes long.
    pub(super) fn read(
        shape: Shape,
        layout: &'static Layout,
        tensors: &Tensors,
        dtype: Dtype,
        loading: &Loading,
        beside: Part,
    ) -> Result<Self> {
        let prefix = find_prefix(tensors, layout)?;
        let reader = Reader { tensors, prefix, shape: &shape, dtype, domains: loading.domains };
        (loading.progress)()?;
        let positions = reader.table("embeddings.position_embeddings", shape.position_rows)?;
        let types = match layout.token_types {
            true => Some(reader.table("embeddings.token_type_embeddings", shape.token_types)?),
            false => None,
        };
        let norm = reader.norm("embeddings.LayerNorm")?;
        let (words, layers): (_, Vec<_>) = (Slot::new(), (0..shape.layers).map(|_| Slot::new()).collect());
        let reader = &reader;
        let read_words = || words.fill(reader.table("embeddings.word_embeddings", shape.vocabulary));
        let slots = layers.iter().enumerate();
        let read_layers: Vec<_> =
            slots.map(|(index, slot)| move || slot.fill(reader.layer(layout, index))).collect();
        let mut parts: Vec<Part> = vec![beside, &read_words];
        parts.extend(read_layers.iter().map(|read| read as Part));
        loading.read(&parts)?;
        let (words, layers) = (words.take(), layers.into_iter().map(Slot::take).collect());
        Ok(Self { dtype, words, positions, types, norm, layers, shape })
    }

    /// What was configured.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes of memory or of the mapped file that its weights take.
    pub(super) fn bytes(&self) -> u64 {
        let types = self.types.as_ref().map_or(0, Table::bytes);
        let norm = |norm: &Norm| ((norm.weight.len() + norm.bias.len()) * size_of::<f32>()) as u64;
        let layer = |layer: &Layer| {
            let maps: u64 = layer.maps().into_iter().map(|map| map.bytes() as u64).sum();
            maps + norm(&layer.attention_norm) + norm(&layer.output_norm)
        };
        self.words.bytes()
            + self.positions.bytes()
            + types
            + norm(&self.norm)
            + self.layers.iter().map(layer).sum::<u64>()
    }

    /// Work for a text of that many tokens, in units that only compare: multiplications of one layer over 2 · hidden.
    pub(super) fn work(&self, tokens: usize) -> u64 {
        let (hidden, intermediate) = (self.shape.hidden as u64, self.shape.intermediate as u64);
        tokens as u64 * (2 * hidden + intermediate + tokens as u64)
    }

    /// Bytes of scratch that [`forward`](Self::forward) takes on the thread that calls it for that many tokens, of which
    /// the longest text has `longest`: an upper bound.
    pub(super) fn scratch(&self, tokens: usize, longest: usize) -> u128 {
        let (hidden, intermediate) = (self.shape.hidden, self.shape.intermediate);
        let wide = intermediate.max(3 * hidden);
        let inner = self.helper_scratch(tokens, longest).max(scratch_bytes(tokens, 1));
        scratch_bytes(tokens, hidden) + scratch_bytes(tokens, wide) + inner
    }

    /// Bytes of it that every thread takes that helps: those of attention over a text of `longest` tokens, or of products
    /// of `tokens` rows.
    pub(super) fn helper_scratch(&self, tokens: usize, longest: usize) -> u128 {
        let head = self.shape.hidden / self.shape.heads;
        let attention =
            scratch_bytes(packed_head_len(longest, head), 1) + scratch_bytes(attention_scratch_len(head), 1);
        let products = self.layers.iter().flat_map(Layer::maps).map(|map| map.scratch_len(tokens)).max();
        attention.max(scratch_bytes(products.unwrap_or(0), 1))
    }

    /// The vectors of the tokens after the last layer. `output` is tokens × hidden.
    pub(super) fn forward(
        &self,
        context: &Context,
        tokens: &Ragged,
        mut output: MatrixMut<f32>,
    ) -> Result<()> {
        let (count, hidden, intermediate) = (tokens.ids.len(), self.shape.hidden, self.shape.intermediate);
        let scratch = &context.scratch[context.thread];
        let mut narrow = scratch.take::<f32>(count * hidden)?;
        let mut wide = scratch.take::<f32>(count * intermediate.max(3 * hidden))?;
        self.embed(context, tokens, MatrixMut::dense(&mut narrow, count, hidden))?;
        let embedded = Matrix::dense(&narrow, count, hidden);
        self.normalize(context, embedded, &self.norm, output.block_mut(0, 0, count, hidden))?;
        let scale = ((hidden / self.shape.heads) as f64).powf(-0.5) as f32;
        // Between products in bf16 or i8 more precision would be lost at once.
        let coarse = matches!(self.dtype, Dtype::Bf16 | Dtype::I8);
        let activation = match self.shape.activation {
            Activation::Gelu if coarse => Activation::GeluCoarse,
            activation => activation,
        };
        for layer in &self.layers {
            let state = output.as_matrix();
            let qkv = MatrixMut::dense(&mut wide, count, 3 * hidden);
            layer.query_key_value.forward(context, state, qkv, Activation::None, None)?;
            let attended = MatrixMut::dense(&mut narrow, count, hidden);
            let qkv = Matrix::dense(&wide, count, 3 * hidden);
            attention(context, qkv, tokens.starts, self.shape.heads, scale, coarse, attended)?;
            // What attention read is not needed any more, so that its memory takes the sum.
            let attended = Matrix::dense(&narrow, count, hidden);
            let sum = MatrixMut::dense(&mut wide, count, hidden);
            layer.attention_output.forward(context, attended, sum, Activation::None, Some(state))?;
            let sum = Matrix::dense(&wide, count, hidden);
            self.normalize(context, sum, &layer.attention_norm, output.block_mut(0, 0, count, hidden))?;
            let state = output.as_matrix();
            let inner = MatrixMut::dense(&mut wide, count, intermediate);
            layer.intermediate.forward(context, state, inner, activation, None)?;
            let inner = Matrix::dense(&wide, count, intermediate);
            let sum = MatrixMut::dense(&mut narrow, count, hidden);
            layer.output.forward(context, inner, sum, Activation::None, Some(state))?;
            let sum = Matrix::dense(&narrow, count, hidden);
            self.normalize(context, sum, &layer.output_norm, output.block_mut(0, 0, count, hidden))?;
        }
        Ok(())
    }

    fn normalize(
        &self,
        context: &Context,
        input: Matrix<f32>,
        norm: &Norm,
        output: MatrixMut<f32>,
    ) -> Result<()> {
        layer_norm(context, input, &norm.weight, &norm.bias, self.shape.epsilon, output)
    }

    /// Sums the rows of the tables in the reference's order: word, type, position.
    fn embed(&self, context: &Context, tokens: &Ragged, output: MatrixMut<f32>) -> Result<()> {
        let mut positions = context.scratch[context.thread].take::<u32>(tokens.ids.len())?;
        for bounds in tokens.starts.windows(2) {
            let (begin, end) = (bounds[0], bounds[1]);
            self.number(&tokens.ids[begin..end], &mut positions[begin..end]);
        }
        let words = (self.words.matrix(), tokens.ids);
        let positions = (self.positions.matrix(), &positions[..]);
        match &self.types {
            Some(types) => embed(context, &[words, (types.matrix(), tokens.types), positions], output),
            None => embed(context, &[words, positions], output),
        }
    }

    /// The positions of the tokens of one text.
    fn number(&self, ids: &[u32], positions: &mut [u32]) {
        match self.shape.positions {
            Positions::FromZero => (0..).zip(positions).for_each(|(number, position)| *position = number),
            Positions::AfterPadding(padding) => {
                let mut last = padding;
                for (id, position) in ids.iter().zip(positions) {
                    let token = *id != padding;
                    last += u32::from(token);
                    *position = if token { last } else { padding };
                }
            }
        }
    }
}
