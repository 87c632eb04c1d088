"""Digests of plain values and of local classes, without torch: run by every Python at hand, all must print the same.

`python python_digests.py FOLDER` takes the package from FOLDER and prints them as JSON.
"""

# ruff: noqa: C416, F841, PIE800
from __future__ import annotations

import array
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import json
import logging
import math
import operator
import pathlib
import re
import sys
import types
import typing
import uuid
from typing import Any


def local_things(k: int) -> dict[str, Any]:
    """Classes, functions and instances that no import leads back to, in much of Python's syntax."""

    class Block:
        """What it is for."""

        __slots__ = ("a", "b")
        size: int = k

        def __init__(self, a: int, *, b: int = 1) -> None:
            "Make it."
            self.a, self.b = a, b

        def forward(self, x: Any) -> Any:
            # comprehensions, context managers, handlers, formats, patterns, lambdas
            y = [i * k for i in range(3) if i] + [*x] + [{**{}, "a": 1}, {j: j for j in x}, {j for j in x}]
            with open(x) as f, open(x):
                pass
            try:
                z = f"{x!r:>{k}} {y} {{}} {k:} {f=}more"
            except (ValueError, TypeError) as error:
                raise RuntimeError(z := 1) from error
            else:
                assert x, "message"
            finally:
                del y
            match x:
                case {"a": [1, *rest]} if rest:
                    return rest
                case Block(a=1) | None:
                    pass
            for i in x:
                if i:
                    continue
                break
            else:
                x @= ~(z**-1) // 2
            while x and not z:
                x, (y, *z) = x[1:2, ...], x[::-1]
            global PI
            PI = 3.5e-300 + 1j + 0x10 + 10_000 + len(b"\xff\0") + len("\ud800")
            return super().__init__() or (lambda q, /, r=2, *s, t, **u: q + r if s else (yield))

        @property
        def p(self) -> int:
            return self.a

        @functools.cached_property
        def c(self) -> int:
            return self.a

        @contextlib.contextmanager
        def ctx(self) -> typing.Iterator[None]:
            yield

        @staticmethod
        def st() -> None: ...

        @classmethod
        def cl(cls) -> None:
            """Nothing."""

        @functools.lru_cache  # noqa: B019
        def lc(self) -> None: ...

        async def co(self) -> None:
            async with self as x:
                await x
            [i async for i in x]

    @dataclasses.dataclass
    class Options:
        a: int = k
        b: list[int] = dataclasses.field(default_factory=list)

        def m(self) -> int:
            return self.a

    @dataclasses.dataclass(frozen=True, order=True)
    class Frozen:
        a: int = k

    class Colour(enum.Enum):
        RED = k
        BLUE = 2

        def m(self) -> int:
            return self.value

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 2

    class Word(str, enum.Enum):
        YES = "yes"

    class Right(enum.Flag):
        READ = 1
        WRITE = 2

    pair = collections.namedtuple("pair", "a b", defaults=[k])

    class Triple(typing.NamedTuple):
        a: int
        b: str = "x"

        def m(self) -> int:
            return self.a

    class Box(typing.Generic[typing.TypeVar("T")]):  # type: ignore[misc]
        pass

    def outer(x: int, *, y: int = k) -> Any:
        def inner(z: int) -> Any:
            return z + x + outer(y)

        return inner

    return {
        "Block": Block, "method": Block(1).forward, "Options": Options, "options": Options(), "Frozen": Frozen,
        "frozen": Frozen(3), "Colour": Colour, "red": Colour.RED, "Level": Level, "high": Level.HIGH, "Word": Word,
        "word": Word.YES, "Right": Right, "rights": Right.READ | Right.WRITE, "pair": pair, "a pair": pair(1),
        "Triple": Triple, "triple": Triple(1), "Box": Box, "outer": outer, "inner": outer(3), "lambda": lambda x: x**k,
        "partial": functools.partial(outer, 1, y=2),
    }  # fmt: skip


def plain_values() -> dict[str, Any]:
    """One of each kind of value that Python brings."""
    return {
        "none": None, "true": True, "int": 1, "huge": -(10**5000), "float": 0.1, "nan": math.nan,
        "negative zero": -0.0, "infinite": math.inf, "complex": complex(-0.0, math.nan), "text": "é\0",
        "surrogate": "\ud800", "long": "y" * 10**6,
        "bytes": b"\xff", "bytearray": bytearray(b"x"), "tuple": (1, (2,)), "list": [1, [2]], "ellipsis": ...,
        "dict": {"a": [1, {"b": 2}], 3: None, (1, 2): ()}, "set": {1, "a", None, (1, 2), 2.5},
        "frozenset": frozenset("abc"),
        "range": range(1, 9, 2), "slice": slice(1, None),
        "date": datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
        "zone": datetime.timezone(datetime.timedelta(hours=1), "x"), "decimal": decimal.Decimal("1.50"),
        "fraction": fractions.Fraction(1, 3), "uuid": uuid.UUID(int=5), "pattern": re.compile("a+", re.IGNORECASE),
        "array": array.array("d", [1, 2]), "address": ipaddress.ip_address("1.2.3.4"),
        "path": pathlib.PurePosixPath("/a"),
        "namespace": types.SimpleNamespace(a=1), "logger": logging.getLogger("a.b"), "getter": operator.itemgetter(1),
        "ordered": collections.OrderedDict(a=1), "counter": collections.Counter("aab"),
        "deque": collections.deque([1], 3),
        "default": collections.defaultdict(list, a=[1]), "chain": collections.ChainMap({"a": 1}),
        "class": collections.Counter,
        "type": int, "builtin": math.sin, "bound": "-".join, "descriptor": str.upper, "alias": list[int],
        "module": math,
    }  # fmt: skip


def digests() -> dict[str, str]:
    from modulekg_widgets.engine.identity.encoding import python_values  # noqa: F401  it registers the encodings
    from modulekg_widgets.engine.identity.encoding.packing import digest
    from modulekg_widgets.engine.identity.encoding.python_values import Encoder

    things = plain_values() | local_things(5)
    return {name: digest(Encoder().encode(value, "")).hex() for name, value in things.items()}


if __name__ == "__main__":
    # under the name that it has as a module, since the main module's names lead nowhere
    sys.path[0] = str(pathlib.Path(__file__).parents[1])
    sys.path.append(sys.argv[1])
    from identity import python_digests

    print(json.dumps(python_digests.digests()))
