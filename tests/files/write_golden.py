"""Write the golden model files and what is read of them anew; read the difference before you commit it.

With `--records`, the files stay as they are, and what is read of them is written anew.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest does: classes have the same names
    from files.golden_files import FOLDER, as_read, expected_path, golden_paths, write_files

    if "--records" not in sys.argv:
        write_files(FOLDER)
    for path in golden_paths():
        text = json.dumps(as_read(path), separators=(",", ":"), ensure_ascii=False)
        expected_path(path).write_text(text + "\n", "utf-8")
