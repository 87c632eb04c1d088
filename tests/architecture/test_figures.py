"""The table of figures: it counts what is there, on a checkout that is made up and on this one."""

from pathlib import Path

import pytest

from architecture.figures import figures, table, typescript_graph

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "modulekg_widgets/__init__.py": "",
    "modulekg_widgets/engine/__init__.py": "",
    "modulekg_widgets/engine/a.py": "import modulekg_widgets.engine.b\nclass Row: ...\n",
    "modulekg_widgets/engine/b.py": "def f():\n    import modulekg_widgets.engine.a\nclass Row: ...\n",
    "modulekg_widgets/engine/private.py": "import torch\nstorage = torch._C._has_storage\n",
    "modulekg_widgets/engine/c.py": 'import torch\nhas = torch._C._has_storage\nNAMES = ["aten::add", "aten::mul"]\n',
    "modulekg_widgets/widgets/panel.py": "class Panel: ...\n",
    "tests/test_a.py": "def test_a(): ...\n",
    "js/src/core/view.ts": 'import { b } from "./other";\nexport class View {}\n',
    "js/src/core/other/index.ts": 'import type { View } from "../view";\nfunction b() {}\n',
    "js/src/core/view.test.ts": 'import { View } from "./view";\n',
    "js/src/generated/x.ts": "class Ignored {}\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_figures_of_a_small_checkout(checkout: Path) -> None:
    found = figures(checkout)
    assert found["Python, engine: lines"] == "10"
    assert found["Python, engine: files"] == "5"
    assert found["Python, engine: classes"] == "2"
    assert found["Python, widgets: classes"] == "1"
    assert found["Python, tests: files"] == "1"
    assert found["Python: circles of files"] == "1: 2 files"
    assert found["Python: circles of folders"] == "1: modulekg_widgets.engine"
    assert found["engine: class names defined twice"] == "1: Row"
    assert found["engine: lists of operators"] == "1 in 1: c.py"
    assert found["engine: private names of torch outside private.py"] == "1, used 1 times"
    assert found["TypeScript: files"] == "2"
    assert found["TypeScript: classes"] == "1"
    assert found["TypeScript, tests: files"] == "1"
    assert found["TypeScript: circles of files"] == "1: 2 files"


def test_typescript_is_found_with_and_without_its_ending(tmp_path: Path) -> None:
    for name, text in {"a.ts": 'import "./b.js";', "b.ts": 'export * from "./c";', "c.ts": 'import("./a.ts")'}.items():
        (tmp_path / name).write_text(text)
    graph = typescript_graph(tmp_path.glob("*.ts"))
    names = {Path(one).name: {Path(other).name for other in others} for one, others in graph.items()}
    assert names == {"a.ts": {"b.ts"}, "b.ts": {"c.ts"}, "c.ts": {"a.ts"}}


def test_two_checkouts_are_two_columns_of_one_table(checkout: Path) -> None:
    rows = table([checkout, checkout], figures).splitlines()
    assert {row.count("|") for row in rows} == {4}
    assert rows[0] == f"|  | {checkout.name} | {checkout.name} |"


def test_the_figures_of_this_checkout_can_be_counted() -> None:
    found = figures(ROOT)
    assert int(found["Python, engine: lines"]) > 10_000
    assert int(found["TypeScript: lines"]) > 10_000
