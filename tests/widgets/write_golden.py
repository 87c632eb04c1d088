"""Write the golden payloads anew: `python tests/widgets/write_golden.py`; read the difference before you commit it."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))  # as pytest does, so that the classes have the same names
    from widgets.golden_masks import golden_masks
    from widgets.golden_models import payloads, without_lines

    (HERE / "golden").mkdir(exist_ok=True)
    for name, payload in payloads().items():
        text = json.dumps(without_lines(payload), separators=(",", ":"))
        (HERE / "golden" / f"{name}.json").write_text(text + "\n", "utf-8")
    (HERE / "golden_masks").mkdir(exist_ok=True)
    for name, golden in golden_masks().items():
        text = json.dumps(golden, separators=(",", ":"))
        (HERE / "golden_masks" / f"{name}.json").write_text(text + "\n", "utf-8")
