"""The canonical encoding of plain Python values: the same bytes in every process and supported Python.

Nothing of a user's object runs: no `repr`, `str`, `==`, `hash`, property or `__getattr__`. Every value becomes a tag
and a length-prefixed body, so that two encodings are equal only for equal values. What cannot be seen into (a lock, a
file, a C object) is encoded by its type and reported as opaque.

What the types are encoded as is registered in values.py (plain Python) and torch_values.py (torch and numpy).
"""

from __future__ import annotations

import copyreg
import enum
import marshal
import sys
import types
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from modulekg_widgets.engine.identity.numbers import run_of_numbers

DIGEST_SIZE = 16
DEEPEST = 64  # levels of containers within one attribute; real configurations stay below ten
FAST_TYPES = frozenset({type(None), bool, int, float, complex, str, tuple, list, dict})
MOST_REPEATS = 20_000  # containers that are encoded once more because they lie on a cycle; beyond it they multiply

# a spawned process imports the main script under another name
MAIN_MODULES = {"__main__": "__main__", "__mp_main__": "__main__"}

Handler = Callable[["Encoder", Any, str], bytes]
HANDLERS: dict[type, Handler] = {}  # by exact type
BASE_HANDLERS: dict[type, Handler] = {}  # for subclasses, the first along the MRO

# the descriptors of `type` itself: a metaclass may define attributes of the same names
class_mro = type.__dict__["__mro__"].__get__
class_dict = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_flags = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9


def digest(*parts: bytes) -> bytes:
    """16 bytes of blake2b over `parts`."""
    return blake2b(b"".join(parts), digest_size=DIGEST_SIZE).digest()


def sized(part: bytes) -> bytes:
    """The bytes behind their length, so that parts in a row cannot be read another way."""
    return len(part).to_bytes(8, "big") + part


def packed(tag: bytes, *parts: bytes) -> bytes:
    """A tag and its length-prefixed parts; a long encoding becomes its digest, so that nesting never blows up."""
    return _short(tag + b"".join([sized(p) for p in parts]))


def _short(body: bytes) -> bytes:
    return body if len(body) <= 64 else b"#" + digest(body)


def text(value: str) -> bytes:
    return str.encode(value, "utf-8", "surrogatepass")


def fast_key(value: Any) -> bytes | None:
    """Bytes that are equal only for equal plain values, made in C; None for a value that has none.

    `marshal` does not tell the kinds of buffers apart, so an encoding may be kept under such a key only where the
    encoder has met none. Sharing and the order of sets and dicts show in it: equal values may miss each other.
    """
    try:
        return marshal.dumps(value)  # it writes a shared container once, so that sharing never blows up
    except (ValueError, BufferError):
        return None


def fast_keys(values: Iterable[Any]) -> list[bytes] | None:
    """The fast key of each value; None where one of them has none."""
    try:
        return list(map(marshal.dumps, values))
    except (ValueError, BufferError):
        return None


def handles(*classes: type, subclasses: bool = False) -> Callable[[Handler], Handler]:
    """Register an encoding for values of exactly these types, or for those of their subclasses."""

    def decorate(handler: Handler) -> Handler:
        (BASE_HANDLERS if subclasses else HANDLERS).update(dict.fromkeys(classes, handler))
        return handler

    return decorate


class _Known(NamedTuple):
    """The encoding of a container, which is kept so that its id stays its own."""

    value: Any
    encoding: bytes
    opaque: bool
    cycle: frozenset[int]  # ids of the containers on a cycle with it


class Encoder:
    """Encodes values; `opaque` collects the attribute paths that could not be seen into.

    One encoder serves one model: it remembers shared containers by identity, so the model must stay as it is.
    """

    def __init__(self) -> None:
        self.opaque: list[str] = []
        self.buffers_met = 0  # values that their fast key does not tell apart
        self.keep: list[Any] = []  # values made while encoding: their ids must stay theirs
        self._open: dict[int, int] = {}  # id of the containers being encoded -> their depth
        self._lowest = sys.maxsize  # the shallowest open container that a back reference has reached
        self._entered: list[int] = []  # ids of containers that are open, or on a cycle with one that is
        self._on_cycles: set[int] = set()  # ids of containers whose encoding depends on what is open around them
        self._repeats = 0
        self._known: dict[int, _Known] = {}
        self._classes: dict[type, bytes] = {}
        self._open_classes: set[int] = set()
        self._attributes: dict[bytes, bytes] = {}

    def encode(self, value: Any, path: str) -> bytes:
        handler = HANDLERS.get(type(value))
        if handler is None:
            handler = self._handler_of(type(value))
        return handler(self, value, path)

    def _handler_of(self, cls: type) -> Handler:
        bases = class_mro(cls)
        if enum.Enum in bases:  # before the plain type that it may mix in
            return BASE_HANDLERS[enum.Enum]
        for base in bases:
            handler = BASE_HANDLERS.get(base)
            if handler is not None:
                return handler
        return encode_object

    def opaque_value(self, value: Any, path: str, *seen: bytes) -> bytes:
        """The encoding of a value by its type and by what of it can be seen; `path` is reported."""
        self.opaque.append(path)
        return packed(b"?", self.class_reference(type(value)), *seen)

    def nested(self, value: Any, path: str, body: Callable[[], bytes]) -> bytes:
        """The encoding of a container: once per object, cycles as the number of levels up."""
        key = id(value)
        known = self._known.get(key)
        if known is not None and known.cycle.isdisjoint(self._open):
            if known.opaque:
                self.opaque.append(path)
            return known.encoding
        depth = len(self._open)
        if key in self._open:
            self._lowest = min(self._lowest, self._open[key])
            return packed(b"^", (depth - self._open[key]).to_bytes(4, "big"))
        self._repeats += key in self._on_cycles
        if depth >= DEEPEST or self._repeats > MOST_REPEATS:
            return self.opaque_value(value, path)
        opaque_before, entered_before = len(self.opaque), len(self._entered)
        self._entered.append(key)
        self._open[key] = depth
        outer, self._lowest = self._lowest, sys.maxsize
        try:
            encoding = body()
        finally:
            del self._open[key]
            reached = self._lowest
            self._lowest = min(outer, reached) if reached < depth else outer
        if reached < depth:
            self._on_cycles.add(key)
            return encoding
        # nothing in it depends on where it stands, unless it is met again from within the cycle that it closes
        cycle = frozenset(self._entered[entered_before:]) if reached == depth else frozenset()
        del self._entered[entered_before:]
        self._known[key] = _Known(value, encoding, len(self.opaque) > opaque_before, cycle)
        return encoding

    def class_reference(self, cls: type) -> bytes:
        """A class by its name where it can be imported again, else also by its code and bases."""
        known = self._classes.get(cls)
        if known is not None:
            return known
        module, qualified = class_names(cls)
        if importable(module, qualified, cls) or not is_heap_type(cls):
            known, settled = packed(b"C", text(module), text(qualified)), True
        else:
            known, settled = self._local_class(cls, module, qualified)
        if settled:
            self._classes[cls] = known
        return known

    def _local_class(self, cls: type, module: str, qualified: str) -> tuple[bytes, bool]:
        """The encoding of a class by its code, and whether it is the same wherever the class is met."""
        from modulekg_widgets.engine.identity.code import class_body

        # of what is open, only the classes that lead here can matter to a class
        around, outer = self._open, self._lowest
        self._open = {key: n for n, key in enumerate(key for key in around if key in self._open_classes)}
        self._lowest = sys.maxsize
        self._open_classes.add(id(cls))
        try:
            names = (text(module), text(qualified))
            known = self.nested(cls, "", lambda: packed(b"K", *names, *class_body(self, cls)))
            settled = self._lowest == sys.maxsize
        finally:
            if id(cls) not in around:
                self._open_classes.discard(id(cls))
            self._open = around
            self._lowest = outer if self._lowest == sys.maxsize else 0
        return known, settled

    def sequence(self, tag: bytes, values: Iterable[Any], path: str, *before: bytes) -> bytes:
        """As `packed` of the encodings of values that have an order."""
        listed = list(values)
        run = run_of_numbers(listed)
        if run is None:
            run = b"".join([sized(self.encode(v, f"{path}[{i}]")) for i, v in enumerate(listed)])
        return _short(b"".join((tag, *map(sized, before), run)))

    def encode_state(self, owner: Any, path: str, skip: frozenset[str] = frozenset()) -> list[bytes]:
        """Names and values of an object's `__dict__` and slots, sorted by name."""
        state = instance_state(owner)
        return self.encode_attributes({n: v for n, v in state.items() if type(n) is str and n not in skip}, path)

    def encode_attributes(self, attributes: dict[str, Any], path: str) -> list[bytes]:
        """Names and values, sorted by name."""
        parts: list[bytes] = []
        for name in sorted(attributes):
            parts += [text(name), self.encode_attribute(attributes[name], f"{path}.{name}" if path else name)]
        return parts

    def encode_attribute(self, value: Any, path: str) -> bytes:
        """As `encode`, remembering plain values."""
        key = fast_key(value) if type(value) in FAST_TYPES else None
        if key is None:
            return self.encode(value, path)
        known = self._attributes.get(key)
        if known is None:
            before = (self.buffers_met, len(self.opaque))
            known = self.encode(value, path)
            if (self.buffers_met, len(self.opaque)) == before:
                self._attributes[key] = known
        return known


# ------------------------------------------------------------------ reading objects without their help


def is_heap_type(cls: type) -> bool:
    """Whether the class was made at run time; the others are built into the interpreter or an extension."""
    return bool(_flags(cls) & _HEAP_TYPE)


def instance_state(value: Any) -> dict[str, Any]:
    """The values in an object's `__dict__` and in the slots of its classes, read through the descriptors themselves."""
    state: dict[str, Any] = {}
    for cls in reversed(class_mro(type(value))):
        if not is_heap_type(cls):
            continue
        descriptor = class_dict(cls).get("__dict__")
        if type(descriptor) is types.GetSetDescriptorType:
            state.update(descriptor.__get__(value))
        for name, member in slot_members(cls):
            try:
                state[name] = member.__get__(value)
            except AttributeError:  # a slot that is not set
                continue
    return state


def slot_members(cls: type) -> list[tuple[str, types.MemberDescriptorType]]:
    """The descriptors of the slots that a Python class itself defines."""
    if not is_heap_type(cls):
        return []
    members = class_dict(cls).items()
    return [(n, m) for n, m in members if type(m) is types.MemberDescriptorType and n != "__weakref__"]


def class_names(cls: type) -> tuple[str, str]:
    """Module and qualified name of a class, empty text where the class holds something else there."""
    module = class_dict(cls).get("__module__") if is_heap_type(cls) else type.__getattribute__(cls, "__module__")
    return (MAIN_MODULES.get(module, module) if type(module) is str else ""), _qualname(cls)


def importable(module: str, qualified: str, value: Any) -> bool:
    """Whether `value` is what its name leads to, so that the name alone identifies it."""
    if module in MAIN_MODULES or "<" in qualified:
        return False
    found: Any = sys.modules.get(module)
    for name in qualified.split("."):
        if issubclass(type(found), types.ModuleType):
            found = vars(found).get(name)
        elif issubclass(type(found), type):
            found = class_dict(found).get(name)
        else:
            return False
    return found is value or (type(found) in (staticmethod, classmethod) and found.__func__ is value)


def _has_hidden_state(cls: type) -> bool:
    """Whether a base is implemented in C, so that `__dict__` and slots do not tell all."""
    return any(base is not object and not is_heap_type(base) for base in class_mro(cls))


# classes of the standard library whose instances are values; those of all others hold the state of the process
# fmt: off
_VALUE_MODULES = frozenset(
    {
        "argparse", "array", "collections", "datetime", "decimal", "fractions", "ipaddress",
        "logging", "operator", "re", "types", "uuid", "zoneinfo",
    }
)
# fmt: on


def encode_object(encoder: Encoder, value: Any, path: str) -> bytes:
    """Any other object: its class and what stands in its `__dict__` and slots, or what it would be pickled as."""
    encoder.buffers_met += 1  # it may lend its bytes to a fast key
    cls = type(value)
    home = class_names(cls)[0].partition(".")[0]
    if home in _VALUE_MODULES and importable(*class_names(cls), cls):
        return _encode_reduced(encoder, value, path)
    if home in sys.stdlib_module_names or not _made_by_class_statement(cls):
        # locks, threads, files, C objects: their state is the process's, not the model's
        return encoder.opaque_value(value, path)

    def body() -> bytes:
        state = encoder.encode_state(value, path)
        if _has_hidden_state(cls):
            return encoder.opaque_value(value, path, *state)
        return packed(b"O", encoder.class_reference(cls), *state)

    return encoder.nested(value, path, body)


def _made_by_class_statement(cls: type) -> bool:
    """C extensions make heap types too, but without `__dict__` or slots that Python can read."""
    for base in class_mro(cls):
        namespace = class_dict(base)
        if is_heap_type(base) and (
            "__slots__" in namespace or type(namespace.get("__dict__")) is types.GetSetDescriptorType
        ):
            return True
    return False


def _encode_reduced(encoder: Encoder, value: Any, path: str) -> bytes:
    """A value of the standard library (a date, a pattern, a namespace) as pickle would take it apart."""
    reduce: Callable[[Any], Any] = copyreg.dispatch_table.get(type(value), lambda v: v.__reduce_ex__(2))

    def body() -> bytes:
        try:
            parts = reduce(value)
        except (TypeError, AttributeError):
            return encoder.opaque_value(value, path)
        encoder.keep.append(parts)
        taken = [list(p) if hasattr(p, "__next__") else p for p in parts] if isinstance(parts, tuple) else [parts]
        encoder.keep.append(taken)
        return packed(b"R", encoder.class_reference(type(value)), *(encoder.encode(p, path) for p in taken))

    return encoder.nested(value, path, body)
