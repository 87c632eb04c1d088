"""The graph as files for other tools."""

import csv
import json
import os
import re
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from knowledge.exchanged import WRITTEN, everything, exactly
from knowledge.graphs import zoo_contents
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import GraphFileError, UnknownNameError, UnwritableFileError
from modulekg_widgets.engine.knowledge.exchange import export_contents, exporters, read_contents
from modulekg_widgets.engine.knowledge.exchange.export_formats import COLUMNS, csv_cell
from modulekg_widgets.engine.knowledge.exchange.json_formats import RELATIONS
from modulekg_widgets.engine.knowledge.exchange.lossless_format import xml_unescaped
from modulekg_widgets.engine.knowledge.exchange.property_graph import GRAPH_TYPES, STORED_TYPES, to_networkx
from modulekg_widgets.engine.knowledge.facts.contents import Contents, UserNode
from modulekg_widgets.engine.knowledge.facts.property_values import from_json

JS = Path(__file__).resolve().parents[2] / "js"


@pytest.fixture(scope="module")
def graph() -> mk.KnowledgeGraph:
    made = mk.KnowledgeGraph()
    for name in ("resnet18", "squeezenet1_0"):
        made.add_model(zoo_model(name), name=name)
    return made


@pytest.fixture(scope="module")
def hostile() -> mk.KnowledgeGraph:
    """Classes whose names are markup, quotes, escapes and blanks; children named by half a character."""
    made = mk.KnowledgeGraph()
    names = ['"', "\\", '\\"', "a\nb", "a b", "<b>x</b>", "\r", "\\N", "é", "]; evil [", "// x", "\u202e", ""]
    made.add_model(nn.Sequential(*(type(name, (nn.Module,), {})() for name in names)), name="hostile")
    made.add_model(NASTY["hostile_names"]["make"](), name="<script>")
    return made


def drawn(path: Path) -> str:
    done = subprocess.run(["dot", "-Tplain", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dot_is_accepted_and_complete(graph: mk.KnowledgeGraph, tmp_path: Path, require: Callable[..., None]) -> None:
    require("$dot")
    path = graph.export(tmp_path / "graph.dot")
    lines = drawn(path).splitlines()
    made = graph.to_networkx("all")
    assert sum(line.startswith("node ") for line in lines) == len(made)
    assert sum(line.startswith("edge ") for line in lines) == made.number_of_edges()


def test_hostile_names_stay_text_in_dot(
    hostile: mk.KnowledgeGraph, tmp_path: Path, require: Callable[..., None]
) -> None:
    require("$dot")
    lines = drawn(hostile.export(tmp_path / "hostile.dot")).splitlines()
    assert sum(line.startswith("node ") for line in lines) == len(hostile.to_networkx("all"))


def test_dot_names_the_structures_and_their_uses(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    text = graph.export(tmp_path / "graph.dot").read_text()
    name = mk.fingerprint(nn.ReLU(inplace=True)).display_name
    assert f'[label="{name} ×35"];' in text
    assert text.startswith("digraph")


@pytest.mark.parametrize("which", ["graph", "hostile"])
def test_the_edge_list_has_a_line_per_edge(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    graph = request.getfixturevalue(which)
    made = graph.to_networkx()
    lines = graph.export(tmp_path / "graph.edges").read_text(encoding="utf-8").splitlines()
    words = [line.split(" ") for line in lines]
    assert all(len(line) in (1, 2) and all(line) for line in words)
    assert sum(len(line) == 2 for line in words) == made.number_of_edges()
    assert len({word for line in words for word in line}) == len(made)


def test_a_structure_without_edges_has_a_line_of_its_own(tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU())
    name = mk.fingerprint(nn.ReLU()).display_name
    assert graph.export(tmp_path / "graph.edges").read_text() == f"{name}\n"


@pytest.mark.parametrize("name", ["graph.xyz", "graph", "graph.dott"])
def test_an_unknown_format_is_refused_and_writes_nothing(graph: mk.KnowledgeGraph, name: str, tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match="there is no export format"):
        graph.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_files_appear_whole_or_not_at_all(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    path = tmp_path / "graph.DOT"
    path.write_text("old")
    assert graph.export(str(path)) == path
    assert path.read_text().startswith("digraph")
    assert [p.name for p in tmp_path.iterdir()] == ["graph.DOT"]
    with pytest.raises(mk.ModuleKGError, match="there is no folder"):
        graph.export(tmp_path / "missing" / "graph.dot")


def test_two_exports_are_the_same_bytes(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    first, second = (graph.export(tmp_path / name).read_bytes() for name in ("a.dot", "b.dot"))
    assert first == second


# ------------------------------------------------------------------ all node types


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Everything, in every format."""
    folder = tmp_path_factory.mktemp("written")
    return {ending: export_contents(everything(), folder / f"graph.{ending}") for ending in WRITTEN}


@pytest.fixture(scope="module")
def whole() -> nx.DiGraph:
    return to_networkx(everything(), "all")


def test_hostile_texts_stay_text_in_xml(written: dict[str, Path], whole: nx.DiGraph) -> None:
    tree = ElementTree.parse(written["graphml"])
    space = "{http://graphml.graphdrawing.org/xmlns}"
    ids = [xml_unescaped(node.attrib["id"]) for node in tree.iter(f"{space}node")]
    assert ids == list(whole)
    ends = [(xml_unescaped(e.attrib["source"]), xml_unescaped(e.attrib["target"])) for e in tree.iter(f"{space}edge")]
    assert sorted(ends) == sorted(whole.edges)
    assert {element.tag for element in tree.iter()} == {
        space + tag for tag in ("graphml", "key", "graph", "node", "edge", "data")
    }
    again = nx.read_graphml(written["graphml"])
    assert (len(again), again.number_of_edges()) == (len(whole), whole.number_of_edges())
    assert again.nodes["Job:+1"]["accuracy"] == 1 / 3


def test_gephi_gets_labels_and_relations(written: dict[str, Path], whole: nx.DiGraph) -> None:
    again = nx.read_gexf(written["gexf"])
    assert [xml_unescaped(key) for key in again] == list(whole)
    assert [xml_unescaped(data["label"]) for _, data in again.nodes(data=True)] == [
        d["name"] for _, d in whole.nodes(data=True)
    ]
    assert {data["relation"] for *_, data in again.edges(data=True)} == {
        data["type"] for *_, data in whole.edges(data=True)
    }
    assert b"lastmodified" not in written["gexf"].read_bytes()


def test_json_is_strict_and_holds_every_name(written: dict[str, Path], whole: nx.DiGraph) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for ending in ("cyjs", "jsonld"):
        content = written[ending].read_bytes()
        assert content.isascii()
        document = json.loads(content, parse_constant=refuse)
        nodes = document["@graph"] if ending == "jsonld" else [node["data"] for node in document["elements"]["nodes"]]
        names = [from_json(node["name"]) for node in nodes]
        assert names == [data["name"] for _, data in whole.nodes(data=True)]


def test_json_ld_says_what_its_words_mean(written: dict[str, Path], whole: nx.DiGraph) -> None:
    document = json.loads(written["jsonld"].read_bytes())
    context = document["@context"]
    assert context["name"] == "schema:name"
    ids = {node["@id"] for node in document["@graph"]}
    assert len(ids) == len(whole)
    assert all(re.fullmatch(r"urn:modulekg:[A-Za-z]+:[A-Za-z0-9%._~-]*", identity) for identity in ids)
    links = [end for node in document["@graph"] for relation in RELATIONS for end in node.get(relation, [])]
    assert set(links) <= ids
    assert len(links) >= whole.number_of_edges()
    types = {node["@type"][-1] for node in document["@graph"]}
    assert {"schema:Dataset", "schema:Person", "schema:CreateAction", "schema:SoftwareSourceCode"} <= types
    job = next(node for node in document["@graph"] if node["@id"] == "urn:modulekg:Job:%20%3D1")
    assert job["uses"] == ["urn:modulekg:DataSet:%20%3D1"]
    # a list or dictionary is either JSON as it stands, or leads to other nodes
    structured = {word for node in document["@graph"] for word in node if isinstance(node[word], (dict, list))}
    unknown = {word for word in structured - {"@type"} if not isinstance(context.get(word), dict)}
    assert unknown <= {"name", "dataset", "user", "flops"}  # halves of characters, and more than JSON counts to


def test_no_cell_is_a_formula(written: dict[str, Path], whole: nx.DiGraph) -> None:
    with written["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    nodes = [row for row in rows if row["kind"] == "node"]
    assert [len(nodes), len(rows) - len(nodes)] == [len(whole), whole.number_of_edges()]
    assert set(rows[0]) == set(COLUMNS)
    numbers = {"count", "models", "parameters", "bytes", "flops", "accuracy", "convergence", "started", "ended"}
    for row in rows:
        for column, text in row.items():
            if column in numbers:
                assert text == "" or float(text) >= 0
            else:
                assert text.lstrip()[:1] not in {"=", "+", "-", "@", "＝", "＋", "－", "＠"}
                assert text[:1] not in {"\t", "\r"}
                assert not re.search(r"[;\t\r\n|]\s*[=+\-@]", text)
    assert {row["name"] for row in nodes if row["type"] == "User"} >= {"'=1+1", "'-1", "a,b", 'a"b', "a\nb", "a;'=1;b"}
    assert "\0" not in written["csv"].read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("=1", "'=1"), (" =1", " '=1"), ("\t=1", "'\t'=1"), ("\rx", "'\rx"), ("\n+1", "\n'+1"), ("a=1", "a=1"),
     ("a-b", "a-b"), ("'=1", "'=1"), ("a;@x", "a;'@x"), ("a\t-x", "a\t'-x"), ("a\0b", "a\\u0000b"),
     ("\0=1", "\\u0000=1"), ("", "")],
)  # fmt: skip
def test_cells(text: str, shown: str) -> None:
    assert csv_cell(text) == shown


def test_a_picture_shows_every_node_and_relation(
    written: dict[str, Path], whole: nx.DiGraph, require: Callable[..., None]
) -> None:
    require("$gc")
    # counted without a layout, which has no room for a name of ten thousand letters
    done = subprocess.run(
        ["gc", "-n", "-e", str(written["dot"])], capture_output=True, text=True, timeout=60, check=True
    )
    assert [int(word) for word in done.stdout.split()[:2]] == [len(whole), whole.number_of_edges()]
    text = written["dot"].read_text("utf-8")
    relations = Counter(data["type"] for *_, data in whole.edges(data=True))
    for relation in set(RELATIONS) - {"contains"}:
        edges = re.findall(rf' -> .* \[label="{relation}", style=dashed\];$', text, re.MULTILINE)
        assert len(edges) == relations[relation]


def test_edge_lists_have_structures_alone(written: dict[str, Path]) -> None:
    """They know one kind of node and one kind of edge."""
    structures = to_networkx(everything(), "Module")
    lines = written["edges"].read_text("utf-8").splitlines()
    assert sum(line.count(" ") for line in lines) == structures.number_of_edges()


def relations_of(path: Path) -> Counter[str]:
    """How many edges of each relation a file has."""
    text = path.read_text("utf-8")
    match path.suffix:
        case ".graphml":
            return Counter(data["type"] for *_, data in nx.read_graphml(path).edges(data=True))
        case ".gexf":
            return Counter(data["relation"] for *_, data in nx.read_gexf(path).edges(data=True))
        case ".cyjs":
            return Counter(edge["data"]["type"] for edge in json.loads(text)["elements"]["edges"])
        case ".jsonld":
            nodes = json.loads(text)["@graph"]
            return Counter(relation for node in nodes for relation in RELATIONS for _ in node.get(relation, ()))
    return Counter(row["type"] for row in csv.DictReader(text.splitlines()) if row["kind"] == "edge")


@pytest.mark.parametrize("ending", ["graphml", "gexf", "cyjs", "jsonld", "csv"])
def test_people_runs_and_types_are_in_every_format_that_holds_them(ending: str, tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)), name="r")
    graph.add_dataset("d")
    graph.add_user("u")
    graph.add_job(user="u", dataset="d", model="r", accuracy=0.9)
    expected = Counter(data["type"] for *_, data in graph.to_networkx("all").edges(data=True))
    assert expected["isA"] == 4  # two layers of one class, each of a type at both levels
    found = relations_of(graph.export(tmp_path / f"graph.{ending}"))
    assert {name: found[name] for name in ("isA", "runs", "uses", "trains", "subclassOf")} == {
        name: expected[name] for name in ("isA", "runs", "uses", "trains", "subclassOf")
    }


def test_cytoscape_opens_it_and_gives_it_back(
    written: dict[str, Path], tmp_path: Path, require: Callable[..., None]
) -> None:
    require("$node")
    if not (JS / "node_modules" / "cytoscape").is_dir():
        require("$cytoscape of js/node_modules")
    again = tmp_path / "again.cyjs"
    code = (
        "const fs = require('fs'); const cytoscape = require('cytoscape');"
        f"const cy = cytoscape({{headless: true, ...JSON.parse(fs.readFileSync({str(written['cyjs'])!r}, 'utf8'))}});"
        f"fs.writeFileSync({str(again)!r}, JSON.stringify(cy.json()));"
        "console.log(JSON.stringify([cy.nodes().length, cy.edges().length, cy.nodes('[type = \"User\"]').length]));"
    )
    done = subprocess.run(["node", "-e", code], cwd=JS, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    made = to_networkx(everything(), "all")
    assert json.loads(done.stdout) == [len(made), made.number_of_edges(), len(everything().users)]
    read = read_contents(again)
    assert (read.users.keys(), read.models.keys()) == (everything().users.keys(), everything().models.keys())


def test_an_exporter_of_the_user_gets_the_graph_as_networkx_has_it(tmp_path: Path) -> None:
    given: list[nx.DiGraph] = []

    def lines(graph: nx.DiGraph) -> Iterator[str]:
        given.append(graph)
        yield from (f"{data['type']} {data['name']}" for _, data in graph.nodes(data=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporters, "entries", exporters.entries)
        mk.exporter("types")(lines)
        path = export_contents(zoo_contents(), tmp_path / "graph.types")
        export_contents(everything(), tmp_path / "all.types")
    assert {line.split()[0] for line in path.read_text().splitlines()} == {"Module"}
    assert {data["type"] for _, data in given[1].nodes(data=True)} == {*STORED_TYPES, "Operator"}


def test_two_relations_of_a_pair_stand_on_one_edge(whole: nx.DiGraph) -> None:
    keys = list(zoo_contents(("resnet18", "squeezenet1_1")).modules)
    assert whole.edges[keys[0], keys[1]] == {
        "type": "contains", "count": 1, "order": (0,), "feeds": {"count": 3, "models": {"resnet18": 3}},
    }  # fmt: skip
    assert whole.edges[keys[2], keys[1]] == {"type": "feeds", "count": 1, "models": {"resnet18": 1}}
    assert whole.edges[keys[1], "Operator:aten.conv2d"] == {"type": "calls", "count": 5, "models": {"resnet18": 5}}
    assert whole.edges["User:@SUM(A1)", "Job:@SUM(A1)"] == {"type": "runs"}
    assert whole.edges["Job:@SUM(A1)", "DataSet:@SUM(A1)"] == {"type": "uses"}
    assert whole.edges["Job:@SUM(A1)", "Model:ring"] == {"type": "trains"}


def test_types_of_nodes_can_be_chosen() -> None:
    contents = everything()
    counted = Counter(data["type"] for _, data in to_networkx(contents, "all").nodes(data=True))
    assert counted["Module"] == len(contents.modules)
    assert counted["Job"] == len(contents.jobs)
    assert set(counted) == set(GRAPH_TYPES)
    relations = Counter(data["type"] for *_, data in to_networkx(contents, "all").edges(data=True))
    assert set(relations) == set(RELATIONS)
    assert set(to_networkx(contents, ["User", "DataSet"])) == {f"User:{n}" for n in contents.users} | {
        f"DataSet:{n}" for n in contents.datasets
    }
    with pytest.raises(mk.ModuleKGError, match="there is no type of nodes 'Modul': did you mean 'Module'"):
        to_networkx(contents, ("Modul",))


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "graph.cyjs"
    path.write_text("old")
    contents = Contents(users={"a": UserNode("a", {"x": object()})})
    with pytest.raises(mk.ModuleKGError, match=r"property 'properties\.x' is an object"):
        export_contents(contents, path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("graph.cyjs", "old")]


# ------------------------------------------------------------------ places that cannot be written to


def unwritable(path: object, reason: str) -> None:
    with pytest.raises(UnwritableFileError, match=reason) as caught:
        export_contents(Contents(), path)  # type: ignore[arg-type]
    assert isinstance(caught.value, mk.ModuleKGError)
    assert "name a file in a folder that can be written to" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nul\0.dot", "null"), ("nul" * 20 + "\0.dot", "null"), ("x" * 300 + ".dot", "too long"), ("\ud800.dot", "encode"),
     ("folder.dot", "not a regular file"), ("full.dot", "not a regular file")],
)  # fmt: skip
def test_a_file_that_cannot_be_is_told(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder.dot").mkdir()
    os.symlink("/dev/null", tmp_path / "full.dot")
    unwritable(tmp_path / name, reason)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.dot", "full.dot"]


def test_a_folder_that_may_not_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    unwritable(str(tmp_path / "graph.dot"), r"graph\.dot' cannot be written \(Permission denied\)")


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        unwritable(path, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("graph.dot", "old")]


@pytest.mark.parametrize("path", [None, 3, b"graph.dot"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(GraphFileError, match=r"named by the path of a file, got (?:an? |None)"):
        export_contents(Contents(), path)  # type: ignore[arg-type]


# ------------------------------------------------------------------ changed answers


@pytest.mark.parametrize("types", [3, ["Module", []], [["x"]], {"Module": 1, 3: 2}])
def test_what_is_no_type_of_nodes_is_refused(types: object) -> None:
    with pytest.raises(UnknownNameError, match=r"known: .*'Module'"):
        to_networkx(Contents(), types)  # type: ignore[arg-type]


def test_an_answer_may_be_changed() -> None:
    contents = everything()
    before = exactly(contents), exactly(contents.holders)
    graph = to_networkx(contents, "all")
    changeable = [value for value in values_of(graph) if isinstance(value, (dict, list))]
    assert len(changeable) > len(graph)
    for value in changeable:
        value.clear()
    assert (exactly(contents), exactly(contents.holders)) == before


def values_of(graph: nx.DiGraph) -> list[object]:
    """The attributes of the nodes and edges, and all that these hold."""
    found: list[object] = []
    waiting: list[object] = [data for _, data in graph.nodes(data=True)]
    waiting += [data for *_, data in graph.edges(data=True)]
    while waiting:
        value = waiting.pop()
        found.append(value)
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return found
