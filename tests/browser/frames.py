"""Counts what travels over a kernel's websocket, by direction and message type."""

import itertools
import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Message:
    direction: str  # "sent" by the page or "received" by it
    kind: str  # the protocol's msg_type
    content: dict[str, Any]
    size: int  # bytes


@dataclass
class Traffic:
    """All frames since the last clear()."""

    messages: list[Message] = field(default_factory=list)

    def clear(self) -> None:
        self.messages.clear()

    @property
    def frames(self) -> int:
        return len(self.messages)

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(message.size for message in self.messages)

    def kinds(self, direction: str) -> Counter[str]:
        return Counter(message.kind for message in self.messages if message.direction == direction)

    def sent(self, *kinds: str) -> list[Message]:
        return [message for message in self.messages if message.direction == "sent" and message.kind in kinds]

    def record(self, direction: str, frame: str | bytes) -> None:
        data = frame.encode() if isinstance(frame, str) else frame
        header, content = decode(frame)
        self.messages.append(Message(direction, header.get("msg_type", "?"), content, len(data)))


def decode(frame: str | bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and content of a frame in either of the two wire formats of Jupyter's kernel websocket."""
    if isinstance(frame, str):
        message = json.loads(frame)
        return message.get("header", {}), message.get("content", {})
    # v1.kernel.websocket.jupyter.org: a count and that many offsets (uint64), then channel, header, parent, metadata,
    # content and buffers
    (count,) = struct.unpack_from("<Q", frame)
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    parts = [frame[start:end] for start, end in itertools.pairwise(offsets)]
    return json.loads(parts[1]), json.loads(parts[4])
