"""Write the digests that test_golden.py compares with: `python write_golden.py`, only when the scheme is to change."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import modulekg_widgets as mk
from identity import python_digests
from identity.structures import STRUCTURES, ZOO, structure

GOLDEN = Path(__file__).parent / "golden"


def structures() -> dict[str, dict[str, str]]:
    return {
        scheme: {name: mk.fingerprint(structure(name), scheme).hexdigest for name in names}
        for scheme, names in (("structure", [*STRUCTURES, *ZOO]), ("seed", ZOO))
    }


def write(name: str, content: object) -> None:
    (GOLDEN / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    write("structures.json", structures())
    write("python.json", python_digests.digests())
