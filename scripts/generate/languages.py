"""What languages other than C take over from the header: enumerations and structures, with comments that no longer
speak of pointers, sizes and NULL. typescript.py and python.py write them down in their language's own form."""

import re
import textwrap
from dataclasses import dataclass

from declarations import header

# 32-bit members of structures that are a yes or a no.
FLAGS = {"reproducible", "normalized", "special", "truncated"}
# Texts that hold one entry a line.
LISTS = {"prompt_names", "unread_keys"}
# Structures that only carry arguments across the C boundary.
PLUMBING = {"uform_error_t", "uform_text_t", "uform_file_t", "uform_matrix_t"}
# Sentences that make sense in C only, and what stands in their place elsewhere.
REWORDED = {
    ("uform_embed_options_t", "prompt_name"): "The name of one of the model's prompts. `NOT_FOUND` lists those there are.",
    ("uform_embed_options_t", "prompt"): "A prompt put before every text, as it is; an empty one means none, whatever the model says.",
    ("uform_embed_options_t", "reproducible"): "Demands the bits that any batch, order and thread count give; every class of CPU does so anyway.",
    ("uform_embed_options_t", "progress"): "Told of the rows done so far and of all rows.",
    ("uform_load_options_t", "precision"): "The type of the matmuls' inputs; by default the file's own where the class has it, else f32, and always that of a packed file. One that is packed in i8 or for x86 has no other.",
    ("uform_load_options_t", "reading"): "How the files are read; by default sequentially.",
    ("uform_load_options_t", "cpu_class"): "The class that the layout of the weights is meant for; by default this machine's. Any executor of the residency runs the model all the same.",
    ("uform_load_options_t", "progress"): "Told of the bytes read and packed so far and of all bytes.",
    ("uform_pack_options_t", "precision"): "The type of the weights of linear layers; by default that of the model's files. The others stay as they are.",
    ("uform_pack_options_t", "layout"): "How those weights lie; by default portable.",
    ("uform_executor_description_t", "gpu_class"): "The GPU class that its calls dispatch as; none in RAM.",
    ("uform_executor_description_t", "memory_domains"): "NUMA domains that its threads are spread over.",
    ("uform_model_description_t", "prompt_names"): "The names of the model's prompts.",
    ("uform_model_description_t", "unread_keys"): 'Keys of the configuration files that have no influence here, as "file: key".',
    ("uform_gpu_device_t", "name"): "The vendor's name for it.",
    ("uform_gpu_device_t", ""): "One GPU. Its position in the list of GPUs is the ordinal that executors and models name it by.",
    ("uform_model_description_t", ""): "What a model is.",
}


@dataclass
class Value:
    """A value of an enumeration: `name` as in C without its group, like INTEL_HASWELL."""

    name: str
    number: int
    doc: str

    @property
    def spelling(self) -> str:
        """Its name as a text, like "intel-haswell"."""
        return self.name.lower().replace("_", "-")


@dataclass
class Enumeration:
    """A numeric type of the header with its constants: `words` are those of its name, like ["cpu", "class"]."""

    words: list[str]
    doc: str
    values: list[Value]


@dataclass
class Member:
    """A member of a structure. `kind` is count, number, real, flag, text, callback or the C type of an enumeration;
    `many` says that there may be several."""

    name: str
    kind: str
    doc: str
    many: bool = False


@dataclass
class Structure:
    """Options that a caller gives, or a description that it gets."""

    words: list[str]
    doc: str
    members: list[Member]

    @property
    def optional(self) -> bool:
        return self.words[-1] == "options"


def words(c_name: str) -> list[str]:
    return c_name.removeprefix("uform_").removesuffix("_t").split("_")


def _clean(doc: str) -> str:
    doc = " ".join(doc.split())
    doc = re.sub(r" ?Set `size` to the size of the structure(; zero in any other field is its default| before asking)?\.", "", doc)
    doc = re.sub(r" ?Zero(, where it is taken, derives [^.]*| is unknown)\.", "", doc)
    return re.sub(r": 1 or 0\.", ".", doc)


def enumerations() -> list[Enumeration]:
    """The enumerations in the order of the header."""
    items = header()
    found = []
    for item in items:
        prefix = "UFORM_" + "_".join(words(item.name)).upper() + "_"
        values = [
            Value(other.name.removeprefix(prefix), other.value, _clean(other.doc))
            for other in items
            if other.kind == "constant" and other.name.startswith(prefix) and not other.name.endswith("_CAPACITY")
        ]
        if item.kind != "type" or not values:
            continue
        if "Zero is unknown." in item.doc:
            values.insert(0, Value("UNKNOWN", 0, "Not known."))
        found.append(Enumeration(words(item.name), _clean(item.doc), values))
    return found


def structures() -> list[Structure]:
    """The option and description structures in the order of the header."""
    types = {"uform_" + "_".join(item.words) + "_t" for item in enumerations()}
    found = []
    for item in header():
        if item.kind == "structure" and item.name not in PLUMBING:
            doc = REWORDED.get((item.name, ""), item.doc)
            found.append(Structure(words(item.name), _clean(doc), _members(item, types)))
    return found


def _members(structure, enumeration_types: set[str]) -> list[Member]:
    names = {member.name for member in structure.members}
    found = []
    for member in structure.members:
        if member.name in ("size", "reserved") or member.name.endswith(("_context", "_count")):
            continue
        kinds = {"size_t": "count", "uint64_t": "count", "uint32_t": "count", "int32_t": "number", "float": "real",
                 "uform_text_t": "text", "char": "text", "uform_progress_t": "callback", "const int32_t *": "number"}
        kind = "flag" if member.name in FLAGS else kinds.get(member.type, member.type)
        if kind == member.type and kind not in enumeration_types:
            raise SystemExit(f"{structure.name}.{member.name}: no rule for the type {member.type}")
        many = member.name in LISTS or f"{member.name}_count" in names
        doc = REWORDED.get((structure.name, member.name), member.doc)
        found.append(Member(member.name, kind, _clean(doc), many))
    return found


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
