"""Types of JSON values: what `json.loads` returns, and messages whose keys are not fixed.

A payload with fixed keys is a `TypedDict` beside the code that makes it. Type checkers take one for a
`Mapping[str, object]` and not for a `JsonObject`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonScalar: TypeAlias = "str | int | float | bool | None"
JsonValue: TypeAlias = "JsonScalar | Sequence[JsonValue] | Mapping[str, JsonValue]"
JsonArray: TypeAlias = "list[JsonValue]"
JsonObject: TypeAlias = "dict[str, JsonValue]"
