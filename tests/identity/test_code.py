"""Classes and functions that no import leads back to: their code and closures count, the way it is written does not."""

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, digest, run_cell, same

BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x) * 2
"""

REWRITTEN = '''


# a comment
class Block(nn.Module):
    """What it is for."""

    def __init__(self):
        "Make it."
        super().__init__()


        self.inner = nn.Linear(2,2)  # the heart
    def forward(self,   x):
        """Twice.

        Or so.
        """
        # another comment
        return (self.inner(x)
                * 2)
'''


@pytest.mark.parametrize("with_source", [True, False], ids=["notebook cell", "exec"])
def test_the_same_source_run_twice_is_the_same_entity(with_source: bool) -> None:
    first, second = (run_cell(BLOCK, with_source=with_source)["Block"] for _ in range(2))
    assert first is not second
    assert same(first(), second())


@pytest.mark.parametrize("with_source", [True, False], ids=["notebook cell", "exec"])
def test_comments_docstrings_and_lines_do_not_count(with_source: bool) -> None:
    assert same(*(run_cell(source, with_source=with_source)["Block"]() for source in (BLOCK, REWRITTEN)))


CHANGES = {
    "constant": ("* 2", "* 3"),
    "kind of constant": ("* 2", "* 2.0"),
    "operator": ("* 2", "+ 2"),
    "name": ("self.inner(x)", "self.outer(x)"),
    "argument": ("forward(self, x)", "forward(self, x, y=None)"),
    "default": ("forward(self, x)", "forward(self, x=1)"),
    "base": ("class Block(nn.Module)", "class Block(nn.Identity)"),
    "class attribute": ("    def forward", "    scale = 1\n\n    def forward"),
    "method": ("    def forward", "    def other(self):\n        return 1\n\n    def forward"),
    "property": ("    def forward", "    @property\n    def forward"),
    "decorator": ("    def forward", "    @torch.no_grad()\n    def forward"),
    "class name": ("class Block", "class Block2"),
}


@pytest.mark.parametrize("with_source", [True, False], ids=["notebook cell", "exec"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_two_different_classes_both_called_block_differ(change: tuple[str, str], with_source: bool) -> None:
    changed = BLOCK.replace(*change)
    assert changed != BLOCK
    classes = [run_cell(source, with_source=with_source) for source in (BLOCK, changed)]
    made = [next(v for n, v in names.items() if n.startswith("Block")) for names in classes]
    assert not same(*(cls() for cls in made))


def local(scale: int) -> type[nn.Module]:
    class Block(nn.Module):
        def forward(self, x: int) -> int:
            return x * scale

    return Block


def test_values_in_closures_count() -> None:
    assert same(local(1)(), local(1)())
    assert not same(local(1)(), local(2)())


def test_a_method_that_calls_super_refers_to_its_own_class() -> None:
    assert same(run_cell(BLOCK)["Block"](), run_cell(BLOCK)["Block"]())


def test_bases_that_cannot_be_imported_count_by_their_code() -> None:
    child = BLOCK + "\nclass Child(Block):\n    pass\n"
    assert same(run_cell(child)["Child"](), run_cell(child)["Child"]())
    assert not same(run_cell(child)["Child"](), run_cell(child.replace("* 2", "* 3"))["Child"]())


def test_classes_that_refer_to_each_other() -> None:
    source = BLOCK + "\nclass Other(nn.Module):\n    friend = Block\n\nBlock.friend = Other\n"
    assert same(run_cell(source)["Other"](), run_cell(source)["Other"]())
    changed = source.replace("* 2", "* 3")
    assert not same(run_cell(source)["Other"](), run_cell(changed)["Other"]())


def test_an_importable_class_is_its_name() -> None:
    class Linear(nn.Linear):
        pass

    Linear.__module__, Linear.__qualname__ = "torch.nn.modules.linear", "Linear"
    assert not same(Linear(2, 2), nn.Linear(2, 2)), "the name leads to another class"


def test_the_main_module_of_a_spawned_process_is_the_main_module() -> None:
    assert same(run_cell(BLOCK, "__main__")["Block"](), run_cell(BLOCK, "__mp_main__")["Block"]())


def test_lambdas_count_by_code_defaults_and_closure() -> None:
    def made(k: int) -> str:
        return digest(f=lambda x: x * k)

    assert made(1) == made(1) != made(2)
    assert digest(f=lambda x: x + 1) != digest(f=lambda x: x + 2)
    assert digest(f=lambda x, y=1: x) != digest(f=lambda x, y=2: x)
    assert digest(f=lambda x, *, y=1: x) != digest(f=lambda x, *, y=2: x)


def test_two_lambdas_on_one_line_differ() -> None:
    assert len({digest(f=f) for f in (lambda x: x + 1, lambda x: x + 2)}) == 2


def test_a_function_that_calls_itself() -> None:
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert digest(f=factorial) == digest(f=factorial)


def test_generated_expressions_of_many_terms() -> None:
    def made(last: int, with_source: bool) -> str:
        return digest(f=run_cell(f"f = lambda x: {'x + ' * 800}{last}\n", with_source=with_source)["f"])

    for with_source in (True, False):
        assert made(1, with_source) == made(1, with_source) != made(2, with_source)


def test_what_a_class_caches_and_wraps_counts() -> None:
    source = """
import functools
class Block(nn.Module):
    @functools.cached_property
    def a(self): return 1
    @functools.lru_cache(None)
    def b(self): return 1
    @classmethod
    def c(cls): return 1
    @staticmethod
    def d(): return 1
    e = functools.partialmethod(lambda self: 1)
"""
    lines = [i for i, line in enumerate(source.splitlines()) if "return 1" in line]
    variants = [source, source.replace("lambda self: 1", "lambda self: 2")]
    for i in lines:
        changed = source.splitlines()
        changed[i] = changed[i].replace("return 1", "return 2")
        variants.append("\n".join(changed))
    digests = [mk.fingerprint(run_cell(variant)["Block"]()) for variant in variants]
    assert len(set(digests)) == len(variants)
    assert digests[0] == mk.fingerprint(run_cell(source)["Block"]())


VALUE_CLASSES = """
import collections, dataclasses, enum, typing
@dataclasses.dataclass
class Options:
    width: int = 1
    names: list = dataclasses.field(default_factory=list)
    def area(self): return 1
class Colour(enum.Enum):
    RED = 1
    def name_of(self): return 1
class Level(enum.IntEnum):
    LOW = 1
Pair = collections.namedtuple("Pair", "left right", defaults=[1])
class Triple(typing.NamedTuple):
    a: int
    b: int = 1
"""


@pytest.mark.parametrize("expression", ["Options()", "Colour.RED", "Level.LOW", "Pair(0)", "Triple(0)", "Options"])
def test_data_classes_enumerations_and_named_tuples_of_a_cell(expression: str) -> None:
    def value(source: str) -> str:
        return digest(x=eval(expression, run_cell(source)))

    assert value(VALUE_CLASSES) == value(VALUE_CLASSES)
    assert value(VALUE_CLASSES) != value(VALUE_CLASSES.replace("= 1", "= 2").replace("[1]", "[2]"))


def test_a_thousand_lambdas_read_their_file_once() -> None:
    source = "fs = [\n" + "".join(f"    lambda x: x + {i},\n" for i in range(1000)) + "]\n"
    functions = run_cell(source)["fs"]
    assert len({digest(f=f) for f in functions[::100]}) == 10
    assert mk.fingerprint(Holder(fs=functions)) == mk.fingerprint(Holder(fs=run_cell(source)["fs"]))


NET = "class Net(nn.Module):\n    def forward(self, x): return act(x) * SCALE\n"
OUTSIDE = "SCALE = 3\ndef act(x): return x.relu()\n"
# what stands outside of the class, and another one with which the class computes something else
OTHERS = {
    "constant": (OUTSIDE, OUTSIDE.replace("3", "4")),
    "helper": (OUTSIDE, OUTSIDE.replace("relu", "tanh")),
    "helper of a helper": (
        "SCALE = 3\ndef act(x): return inner(x)\ndef inner(x): return x.relu()\n",
        "SCALE = 3\ndef act(x): return inner(x)\ndef inner(x): return x.tanh()\n",
    ),
    "constant of a helper": (
        "SCALE = 3\nK = 1\ndef act(x): return x + K\n",
        "SCALE = 3\nK = 2\ndef act(x): return x + K\n",
    ),
    "library function": ("SCALE = 3\nact = torch.relu\n", "SCALE = 3\nact = torch.tanh\n"),
    "module": ("SCALE = 3\nact = nn.ReLU()\n", "SCALE = 3\nact = nn.Tanh()\n"),
    "class": (
        "SCALE = 3\nclass act:\n    def __new__(cls, x): return x.relu()\n",
        "SCALE = 3\nclass act:\n    def __new__(cls, x): return x.tanh()\n",
    ),
    "helper that calls itself": (
        "SCALE = 3\ndef act(x, n=2): return act(x, n - 1).relu() if n else x\n",
        "SCALE = 3\ndef act(x, n=2): return act(x, n - 1).tanh() if n else x\n",
    ),
}


@pytest.mark.parametrize("with_source", [True, False], ids=["notebook cell", "exec"])
@pytest.mark.parametrize("outside", OTHERS.values(), ids=OTHERS)
def test_global_variables_and_helper_functions_count(outside: tuple[str, str], with_source: bool) -> None:
    one, other = outside
    first, again, second = (run_cell(text + NET, with_source=with_source)["Net"]() for text in (one, one, other))
    assert same(first, again)
    assert not same(first, second)


INNER = """
K = 1
class Net(nn.Module):
    def forward(self, x):
        def f(y): return [y + K for _ in range(2)]
        return f(x)
"""


def test_global_variables_count_in_comprehensions_and_inner_functions() -> None:
    one, again, other = (run_cell(text)["Net"]() for text in (INNER, INNER, INNER.replace("K = 1", "K = 2")))
    assert same(one, again)
    assert not same(one, other)


def test_what_a_class_does_not_name_does_not_count() -> None:
    more = "OTHER = object()\ndef unused(x): return x\n"
    assert same(*(run_cell(text + NET)["Net"]() for text in (OUTSIDE, OUTSIDE + more)))


def test_a_name_without_a_value_and_a_class_that_names_itself() -> None:
    source = "class Net(nn.Module):\n    def forward(self, x): return super(Net, self).forward(x) + LATER\n"
    names = run_cell(source)
    before = mk.fingerprint(names["Net"]())
    assert before == mk.fingerprint(run_cell(source)["Net"]())
    names["LATER"] = 1
    assert mk.fingerprint(names["Net"]()) != before


def test_a_cell_that_runs_again_changes_what_its_classes_before_compute() -> None:
    """The globals of both are those of the notebook: a model of the first run calls the helper of the second, too."""
    names = run_cell(OUTSIDE + NET, with_source=False)
    first = names["Net"]()
    before = mk.fingerprint(first)
    exec((OUTSIDE + NET).replace("relu", "tanh"), names)
    assert mk.fingerprint(first) == mk.fingerprint(names["Net"]()) != before
