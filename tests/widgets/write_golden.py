"""Write the golden payloads anew: `python tests/widgets/write_golden.py`; read the difference before you commit it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def write(folder: str, made: Mapping[str, Any]) -> None:
    (HERE / folder).mkdir(exist_ok=True)
    for name, golden in made.items():
        text = json.dumps(golden, separators=(",", ":"))
        (HERE / folder / f"{name}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))  # as pytest does, so that the classes have the same names
    from views import operator_cases
    from widgets.forward_samples import golden_passes
    from widgets.golden_masks import golden_masks
    from widgets.golden_models import payloads, without_lines
    from widgets.knowledge_samples import golden_knowledge

    write("golden", {name: without_lines(payload) for name, payload in payloads().items()})
    write("golden_masks", golden_masks())
    write("golden_forward", golden_passes())
    write("golden_knowledge", golden_knowledge())
    text = json.dumps(operator_cases.flows(), separators=(",", ":"))
    operator_cases.FILE.write_text(text + "\n", "utf-8")
