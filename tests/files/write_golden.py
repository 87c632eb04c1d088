"""Write the golden model files and what is read of them anew; read the difference before you commit it.

With `--records`, the files stay as they are, and what is read of them is written anew.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest does: classes have the same names
    from files.golden_files import FOLDER, as_read, as_shown, expected_path, golden_paths, shown_path, write_files

    if "--records" not in sys.argv:
        write_files(FOLDER)
    for path in golden_paths():
        for told, where in ((as_read(path), expected_path(path)), (as_shown(path), shown_path(path))):
            where.write_text(json.dumps(told, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")
