"""Write the golden outputs anew: `python tests/goldens/write.py [SUBJECT …]`; read the difference before you commit it.

`python tests/goldens/write.py --show "plans/three ratio"` prints the whole output of one case, of which the golden file
may have digests alone; at an earlier commit it prints the one to compare with.
"""

import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # as pytest does, so that the classes have the same names
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    from goldens import goldens
    from goldens.digests import stored

    warnings.simplefilter("ignore")
    arguments = sys.argv[1:]
    if arguments[:1] == ["--show"]:
        for each in arguments[1:]:
            subject, _, name = each.partition("/")
            print(goldens.cases_of(subject)[name].text())
    else:
        for subject in arguments or goldens.SUBJECTS:
            goldens.write(subject, {name: stored(case.text()) for name, case in goldens.cases_of(subject).items()})
        goldens.write("versions", goldens.versions())
