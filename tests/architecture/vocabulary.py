"""The vocabulary of names: glossary, word lists, and denied words with a better one for each.

A name consists of words that an engineer of this field searches for. Our own nouns are in the glossary, a table of
docs/architecture.md; every other word is in a list below or part of a public name of torch. Words are compared in the
singular and in American spelling; numbers and single letters are ignored.

A new word: prefer one that is known. If it is a term of the field that any engineer knows, add it to the list where it
belongs; a noun of our own needs a row in the glossary, which has at most 45.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from architecture.python_sources import modules_of, tree_of


def _words(text: str) -> list[str]:
    return text.split()


# PyTorch, its layers and operators, and the formats of its files
TORCH = _words("""
    accumulation activation adaptation adapted adapter adaptive addmm addr affine alias arg attention attribute
    autocast backward bag batch bias bilinear block bn broadcast bucketize buffer call cast cat cdist cell channel
    chunk clone col complex compressed config configuration conv convolution cpu cross ctc cumulate ddp decompose
    decomposed decomposition deform depthwise device diag diagonal diffusers dim dimension dispatch dispatcher dist
    distillation distributed dtype eager elementwise embed embedding encoder equal expand fake fft fill flat
    flattened flip float flop folding forward fpgm fused gain gate gated gather generator ggml gguf glu gradient
    grid grouped head hessian higher hook hot im inference initialised input int interleave isin itemsize jagged
    kernel lasso layer layout linalg linear logit loss low masked masking math matmul matvec meta mkldnn mm mode
    movedim multihead multilabel neuron nms nni node norm normalization numpy observe observer offset onnx opcode
    operand operator optimizer output overload pack pad padded param parameter parquet pdist permute phase pickle
    pickled pixel plane pointwise pool prelu pretrained profile profiling prune pruning ps pt pytree quant
    quantization quantize quantized quantizer rank real recalibrate recalibrated recalibration recurrent reduce
    reduction registered renorm repeat repr reshape reshaping resize retrace rng rnn roi roll round router runtime
    safetensors scalar scaled scan scatter scripted seeded segment select sequential shape shard sharded sharding
    shuffle sigmoid signature slice sliceable slicer softmax sort sparse speedup split square squeeze stack state
    std step storage stride strided symbolic take taylor tbc teacher tensor tid timm top torch torchvision trace
    tracing training transformer transpose triangular trilinear unbind unfold unfolded uninitialized unregistered
    unscaler unshuffle unsqueeze unwrap unwrapped view weight window wrapper zero zeroed
""")

# Jupyter, the web, files, formats and databases
JUPYTER = _words("""
    answer archive arrowhead atomic board box byte cancellation catalog chart checkpoint child clear cli closure
    code colab color coloring column comm comma command configured csacademy csv cytoscape dashboard database decode
    demo deprecated deprecation digraph document dot draw edge editor encode encoded encoding engine escaped event
    exchange expanded expansion explorer export exporter extension folder format formatter front gc gexf graph
    graphml hash header heap heatmap hexdigest host html id importable importer indexing inline insert interrupted
    item json jsonld key keyword lab lapack library link linking listener load loader location logarithmic logged
    logger lossless machine mapping marimo message metadata migrate mlflow monitor monitoring name networkx notebook
    object packable package packed packing palette panel parser paused persistent picture pill playback player plot
    plugin png point polyline prefixed preview printable process program progress property qualified question
    readable reader rect referenced renamed repository ring row schema scheme scope selectable self series session
    span sqlite stored stream subshell svg tab table text timestamp title unescaped url user varint version visible
    walk wandb warning widget wire workbench writer xml zip
""")

# statistics, graphs, compilers, machine learning
TEXTBOOK = _words("""
    accuracy adjacency aggregate algebra align alternative analyse analysis anomaly applicability argument array
    boosted boosting bound bounded budget builder bytecode cache cached calibration callable caller candidate
    canonical centrality chain class clock cluster collector common community companion comparison compensation
    compile compiled compiler compute computed condition conflict conformal consistent constant
    container containment context contributing control converge convergence copier cost count counter covariance
    criterion crossing curve cuttable data dataflow dataset dead decade decision deep degree dense dependence
    dependency dependent depth derived design dict diff difference digest digester discrepancy diverged divergence
    domain domination donor duplicate effect eigenvalue element ensemble entropy entry equation equivalence
    equivalent error estimator evaluate evaluation evolution execution expert exponent expression fact factor
    factored factory feature figure finite fit fitted fitting flatten flattening flow folded formulas fraction
    frequency frequent gaussian generate generated generation global gnn goal group hierarchy histogram history
    hyperparameter idempotent identity image imagenet increasing indexed indicator infeasible infer inferred
    influence info integer intercepted interception interceptor interleaved interval inverse isolated
    isolation kind kurtosis label largest latency law leading leaf least length limit literal live liveness local
    locate locator log loop louvain magnitude manifest map marginal matcher matching matrix mean measurable measure
    measurement memory merge merged meshgrid method metric min minimum mismatch mixed mixture modality modularity
    moved movement mutation native nearest neighbor nested network noise nominal nondeterministic normal normalized
    number numbering observation occurrence opaque operation order ordering origin original outlier outlying overlap
    overshoot pair parallel pareto parse partial penalized permutation permuted planned planner polynomial position
    positional power predict prediction predictor prefix private producer product propagation proportion proposal
    protected provable prove proved pruned pseudo python quartile random range ranking ratio reach reachable
    rebinned recipe recompute recomputed record recorded recorder recording recursion reference refuted register
    registration registry regressor regularization relabel relative repetition replay representative
    reproducible request requirement rerun rescaled residual resolve restore result rewriting ridge role root
    rounding rule running sample sampled sampling saving scale schedule score scoring script search seed selected
    semantic sensitivity separable separation shift sibling similarity singular site slack sliding snapshot solution
    solve solver source sparsity spatial spectra spectrum spike squared stable stage statistic stopwatch structural
    subclass subsequence subterm subtracted sum summand summary swap symmetric tagged target task test thread
    threshold tied time timed timing track tracker traffic transaction transfer tree trial triangle truncated uncut
    unified uniform unify union unit usage validation value var variation vector verification verify weighted width
    zoo
""")

# everyday English in names
PLAIN = _words("""
    abbreviate accept access activate active activity add added addition adjacent advance after again agreement
    alert all allocate along and any apply are arrange as asked assembly assign at attempt background bar base be
    before best between body broken build building by bypass called can cancelled captured change changed check
    checked checker choice close closest closing commit comparable compare compatibility compatible compensate
    complete contain contained continue conversion copied copy covering create current dangerous deactivate default
    describe described detect differing direct disabled dispatched display distinct dropped each edited
    editing effective empty end escape evenly example exist existing expected explain explicit extend external
    failed failure fast feeding field filter final find finding first fix fixed for force foreign form frame from
    fullest get guard handle has have hidden hint hooked idle if import in inactive individual innermost inside
    installed instance into is joining joint jump keep kg knowledge known large later leaked leave like line
    list loaded longest lower main major make match max may me measured miss missed missing modified modulekg most
    move named new no non nonempty normalize not note nothing num of offer on one only open option or other out
    outer outermost owned owner part pass pending per plain pluralize possible preserve preserved problem published
    put quoted raised read reason rebuild rebuilder rebuilt recover recovery reduced refuse rejection relocate
    remaining removable removal remove removed renumber reopened reordered repair repeated replace replaceable
    replicated report reset resizer resizing rewrite safe same save second separate separated set setting share
    shared short shortened show side similar single skipped sliced slow small spaced stance start stop store suggest
    suggestion to too trusted try uncalled uncaptured unchanged undecided underlying undo unique unknown
    unpack unproved unreachable unread unreadable unsaved unsteady untraced untracked unused unwritable unzero
    upcast update updated use used weak when whole with without word work working wrapped writable write writing
    wrong
""")

# words that no file, class or public function has, and better ones
DENIED = {
    "anatomy": "signature or structure",
    "decor": "style",
    "drawn": "visible or painted; sampled, of random numbers",
    "electorate": "members",
    "elsewhere": "transfer, or where it is",
    "flight": "camera animation",
    "found": "results or matches, or whatever they are",
    "given": "explicit or inputs, or whatever they are",
    "goes": "remove or removed",
    "gone": "removed",
    "heirs": "shared modules",
    "held": "preserved or unregistered",
    "kept": "preserved or remaining",
    "left": "remaining; exit, of a context",
    "lockstep": "replay",
    "look": "isolated run, or sandbox",
    "numbered": "indexed",
    "own": "the word for whose it is: module, local, private …",
    "pacer": "scheduler",
    "paces": "exponents or rates",
    "past": "captured, or beyond what",
    "places": "conditions or locations",
    "precedents": "cache",
    "rehearsal": "dry run",
    "rehearse": "dry run",
    "rest": "remaining, or the word for what remains",
    "rivals": "candidates",
    "said": "constraints or messages",
    "scenery": "layout request or background",
    "seen": "visible or visited",
    "shown": "visible",
    "standing": "state or order",
    "stays": "keep or freeze",
    "stuff": "whatever it is",
    "surroundings": "neighbors or range",
    "taken": "removed or used",
    "tape": "machine or records",
    "thing": "item, node, or whatever it is",
    "told": "reported, or whatever it is",
    "twins": "copies or corresponding ones",
    "unfused": "decomposed",
    "written": "assigned or encoded",
}
# first words that no constant of a module has, and better ones
DENIED_CONSTANTS = {
    "deepest": "MAX_DEPTH",
    "enough": "THRESHOLD, and of what",
    "least": "MIN_…",
    "meets": "TOLERANCE",
    "most": "MAX_…",
}

_ROOT = Path(__file__).resolve().parents[2]
# single words with capitals inside
_ONE_WORD = re.compile("GraphML|MLflow")
_PLURALS = {
    "aliases": "alias",
    "axes": "axis",
    "biases": "bias",
    "caches": "cache",
    "children": "child",
    "criteria": "criterion",
    "indices": "index",
    "leaves": "leaf",
    "matrices": "matrix",
    "series": "series",
    "vertices": "vertex",
}
_AMERICAN = [
    (re.compile("is(e|ed|er|ing|able|ation)$"), r"iz\1"),
    (re.compile("ys(e|ed|er|ing)$"), r"yz\1"),
    (re.compile("(behavi|col|neighb)our"), r"\1or"),
    (re.compile("(cancel|label|model)l(ed|ing)$"), r"\1\2"),
    (re.compile("grey"), "gray"),
    (re.compile("centre"), "center"),
    (re.compile("alogue$"), "alog"),
]


class Name(NamedTuple):
    """A name in the sources."""

    kind: str  # "file", "folder", "class", "function" or "constant"
    text: str
    place: str

    def __str__(self) -> str:
        return f"{self.text} ({self.kind} in {self.place})"


def split(name: str) -> list[str]:
    """The words of a name, in snake case or with capitals; numbers and single letters are left out."""
    joined = _ONE_WORD.sub(lambda match: match[0].capitalize(), name)
    return [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", joined) if len(word) > 1]


def normal(word: str) -> str:
    """A word as it is compared: lower case, singular, American; not always a word itself ("noize")."""
    word = word.lower()
    if word in _PLURALS:
        word = _PLURALS[word]
    elif word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif re.search("(ss|x|ch|sh)es$", word):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as")):
        word = word[:-1]
    for pattern, replacement in _AMERICAN:
        word = pattern.sub(replacement, word)
    return word


@cache
def glossary() -> tuple[str, ...]:
    """The nouns of the glossary: the first column of the first table below "## Words" in docs/architecture.md."""
    section = (_ROOT / "docs" / "architecture.md").read_text("utf-8").partition("\n## Words\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = table[0].splitlines()[2:] if table else []
    return tuple(row.split("|")[1].strip() for row in rows)


@cache
def known_words() -> frozenset[str]:
    """The words of the glossary and of the lists, as they are compared."""
    return frozenset(
        map(normal, [*" ".join(glossary()).replace(",", " ").split(), *TORCH, *JUPYTER, *TEXTBOOK, *PLAIN])
    )


def public_words(*spaces: object) -> frozenset[str]:
    """The words of the public names of modules or classes, as they are compared."""
    names = [name for space in spaces for name in dir(space) if not name.startswith("_")]
    return frozenset(normal(word) for name in names for word in split(name))


@cache
def torch_words() -> frozenset[str]:
    """The words of the public names of torch: an axis rule named after its operator needs no entry in a list."""
    import torch  # takes seconds, and is needed for words that are in no list only

    return public_words(torch, torch.Tensor, torch.nn, torch.nn.functional, torch.optim)


def is_known(word: str) -> bool:
    """True if the word is in the glossary, in a list, or part of a public name of torch."""
    return normal(word) in known_words() or normal(word) in torch_words()


# ------------------------------------------------------------------- names


def python_names(package: Path) -> Iterator[Name]:
    """Names of a package: files, folders, classes at any depth, public functions and constants of modules."""
    for path in modules_of(package).values():
        place = path.relative_to(package).as_posix()
        if path.stem != "__init__":
            yield Name("file", path.stem, place)
        elif path.parent != package:
            yield Name("folder", path.parent.name, place.rpartition("/")[0])
        tree = tree_of(path)
        yield from (Name("class", node.name, place) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                yield Name("function", node.name, place)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
                yield from (Name("constant", name, place) for name in names if name.isupper())


_EXPORTED = r"^export (?:default )?(?:abstract |async )*(class|function)\b\*? *(\w+)"
_LOCAL_CLASS = r"^ *(?:abstract )?(class) (\w+)"
_DECLARED = re.compile(f"{_EXPORTED}|{_LOCAL_CLASS}", re.MULTILINE)


def typescript_names(folder: Path) -> Iterator[Name]:
    """Names of a folder of TypeScript: files, folders, classes, exported functions; generated files are left out."""
    folders = set()
    for path in sorted(folder.rglob("*.ts")):
        place = path.relative_to(folder)
        if "generated" in place.parts:
            continue
        folders |= set(place.parents[:-1])
        yield Name("file", place.name.removesuffix(".ts").removesuffix(".test"), place.as_posix())
        for exported, name, inner, inner_name in _DECLARED.findall(path.read_text("utf-8")):
            yield Name(exported or inner, name or inner_name, place.as_posix())
    yield from (Name("folder", each.name, each.as_posix()) for each in sorted(folders))


# ------------------------------------------------------------------ checks


_BETTER = {normal(word): better for word, better in DENIED.items()}


def denied(names: Iterable[Name]) -> dict[Name, str]:
    """Name → its denied words, each with a better one, for names that have any."""
    result = {}
    for name in names:
        words = split(name.text)
        if name.kind == "constant":
            better = [f"{word}: say {DENIED_CONSTANTS[word]}" for word in words[:1] if word in DENIED_CONSTANTS]
        else:
            better = [f"{word}: say {_BETTER[normal(word)]}" for word in words if normal(word) in _BETTER]
        if better:
            result[name] = "; ".join(better)
    return result


def unknown(names: Iterable[Name]) -> dict[str, str]:
    """Word → the name that has it and what to do, for words that are neither known nor denied."""
    advice = f"use a term of the field; if it is one, add it to a list of {Path(__file__).name}"
    return {
        word: f"in {name}: {advice}"
        for name in names
        if name.kind != "constant"
        for word in split(name.text)
        if normal(word) not in _BETTER and not is_known(word)
    }
