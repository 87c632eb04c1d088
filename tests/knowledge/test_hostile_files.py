"""Files that were forged, cut or made to exhaust their reader: a typed error each, in bounded time and memory."""

from __future__ import annotations

import json
import random
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from knowledge.exchanged import READABLE, everything
from knowledge.graphs import contents_of
from modulekg_widgets.engine.errors import GraphFileError
from modulekg_widgets.engine.knowledge.exchange import export_contents, read_contents
from modulekg_widgets.engine.knowledge.exchange.property_graph import to_networkx
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode

MOST_SECONDS = 2.0
MOST_BYTES = 500e6
formats = pytest.mark.parametrize("ending", READABLE)

# ------------------------------------------------------------------ mutations of valid files

PIECES = [
    b"", b"<", b">", b"/>", b"</data>", b"<data key='d0'>", b"<node id='x'/>", b"<!DOCTYPE x>", b"<![CDATA[", b"]]>",
    b"<!--", b"&lt;", b"&#0;", b"&x;", b"<?x?>", b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true",
    b"NaN", b"-1", b"0", b"1e999", b"9" * 400, b"0.5", b"\\", b"\\u0000", b"\\ud800", b"\\u", b"\0", b"\xff",
    b"\xc3\xa9", b"{}", b"[]", b"$tuple", b'{"$int":"0xff"}', b'{"$dict":[[[],1]]}', b'"a":' * 50, b"[" * 2000,
    b"<data>" * 500, b"A" * 5000, b"Model:", b"Module",
]  # fmt: skip


def small() -> Contents:
    contents = contents_of(net=nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.ReLU())), other=nn.ReLU())
    odd = {"a": (1, float("nan"), 2**80, b"\0"), "b": {1: None, "x\0": [True, -0.0, 1j]}}
    job = JobNode("run", "who", "data", "net", 0.5, 2.0, {"a": [(1, 2.5), (2, float("inf"))]}, 1.0, 2.0, odd)
    return replace(
        contents, jobs={"run": job}, users={"who": UserNode("who", odd)}, datasets={"data": DataSetNode("data", {})}
    )


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with a few bytes, values or stretches of it changed, moved, doubled or cut."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 10))):
        at, length = rng.randrange(len(changed) + 1), int(rng.expovariate(0.05))
        match rng.randrange(8):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                changed[at:at] = rng.choice(PIECES)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = changed[at : at + length * 20]
            case 4:
                end = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[end : end + length]
            case 5 if rng.random() < 0.2:
                del changed[at:]
            case 6:
                digits = [place for place, byte in enumerate(changed) if 48 <= byte < 58]
                if digits:
                    changed[rng.choice(digits)] = rng.choice(b"0123456789-.e")
            case _:
                changed[at : at + length] = rng.choice(PIECES)
    return bytes(changed)


def fuzz(count: int, seed: int, folder: Path) -> tuple[int, int, float]:
    """How many files were read and refused, and the longest time that one took."""
    rng = random.Random(seed)
    valid = {ending: export_contents(small(), folder / f"valid.{ending}").read_bytes() for ending in READABLE}
    read, refused, longest = 0, 0, 0.0
    for number in range(count):
        ending = READABLE[number % len(READABLE)]
        path = folder / f"fuzzed.{ending}"
        path.write_bytes(mutated(valid[ending], rng))
        start = time.process_time()
        try:
            contents = read_contents(path)
        except GraphFileError:
            refused += 1
        else:
            read += 1
            to_networkx(contents, "all")  # what was accepted can be used
        longest = max(longest, time.process_time() - start)
    return read, refused, longest


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def test_fuzzed_files_are_read_or_refused(tmp_path: Path) -> None:
    before = peak()
    read, refused, longest = fuzz(300, 7, tmp_path)
    assert read + refused == 300
    assert refused > 150
    assert longest <= MOST_SECONDS
    assert peak() - before <= MOST_BYTES


@pytest.mark.nightly
def test_very_many_fuzzed_files_are_read_or_refused(tmp_path: Path) -> None:
    before = peak()
    read, refused, longest = fuzz(10_000, 8, tmp_path)
    assert read + refused == 10_000
    assert min(read, refused) > 100
    assert longest <= MOST_SECONDS
    assert peak() - before <= MOST_BYTES


# ------------------------------------------------------------------ made to exhaust or to reach out


def refused(path: Path, content: str | bytes, reason: str) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    before, start = peak(), time.process_time()
    with pytest.raises(GraphFileError, match=reason):
        read_contents(path)
    assert time.process_time() - start <= MOST_SECONDS
    assert peak() - before <= MOST_BYTES


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 30))
GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'


@pytest.mark.parametrize(
    "head",
    [
        f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>', '<!DOCTYPE x SYSTEM "file:///dev/zero">',
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>', "<!DOCTYPE graphml>",
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://xss.invalid/x">%p;]>',
        '<!DOCTYPE x [<!ENTITY q "' + "q" * 100_000 + '">]>', '<!DOCTYPE x PUBLIC "a" "http://xss.invalid/x.dtd">',
    ],
    ids=range(7),
)  # fmt: skip
def test_no_dtd_is_read(head: str, tmp_path: Path) -> None:
    valid = export_contents(small(), tmp_path / "valid.graphml").read_text()
    refused(tmp_path / "dtd.graphml", head + valid, "it has a DTD, which GraphML needs none of")
    refused(tmp_path / "dtd.graphml", head + GRAPHML + "&l29;&e;&q;</graphml>", "DTD")


@pytest.mark.parametrize(
    "head", ['<?xml version="1.0" encoding="utf-7"?>', '<?xml version="1.0" encoding="zip"?>', '<?xml version="1.1"?>']
)
def test_the_encoding_of_the_head_is_not_looked_up(head: str, tmp_path: Path) -> None:
    path = export_contents(small(), tmp_path / "valid.graphml")
    valid = path.read_bytes()
    path.write_bytes(head.encode() + valid)
    assert read_contents(path).models.keys() == small().models.keys()
    path.write_bytes(head.encode() + valid.replace(b'"net"', b'"\xe9"'))
    with pytest.raises(GraphFileError, match="is not XML"):
        read_contents(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<graphml>" * 200_000, "where none belongs"),
        (GRAPHML + "<graph>" + "<node id='a'>" * 100_000, "where none belongs"),
        (GRAPHML + "<graph><node id='a'><graph><node id='b'/></graph></node></graph></graphml>", "where none belongs"),
        (GRAPHML + "<script>x</script></graphml>", "<script> where none belongs"),
        (GRAPHML + "<graph><hyperedge/></graph></graphml>", "<hyperedge> where none belongs"),
        (GRAPHML + "<graph>text</graph></graphml>", "the text 'text' where none belongs"),
        (GRAPHML + "<graph><node/></graph></graphml>", "no 'id'"),
        (GRAPHML + "<graph><data key='x'>1</data></graph></graphml>", "not declared"),
        (GRAPHML + "<key id='a' for='graph' attr.name='version' attr.type='long'/><graph><data key='a'>"
         + "9" * 3_000_000 + "</data></graph></graphml>", "no format"),
        (GRAPHML + "<key id='a' attr.name='x' attr.type='int'/><graph><data key='a'>x</data></graph></graphml>", "'x'"),
        (GRAPHML + "<key id='a' attr.name='x'/><graph><data key='a'>\\x</data></graph></graphml>", "backslash"),
        ("<graphml" + " a='1'" * 10_000 + "/>", "is not XML"),
        ("<graphml " + " ".join(f"a{i}='1'" for i in range(100_000)) + "/>", "no format"),
    ],
    ids=range(13),
)  # fmt: skip
def test_xml_that_is_no_graph_of_ours(content: str, reason: str, tmp_path: Path) -> None:
    refused(tmp_path / "bad.graphml", content, reason)


@pytest.mark.parametrize("ending", ["cyjs", "jsonld"])
@pytest.mark.parametrize(
    "content",
    [
        "[" * 5_000_000, '{"a":' * 2_000_000, "9" * 5_000_000, '"' + "\\" * 5_000_000, "[" + "1," * 2_000_000, "-",
        '{"data":{"format":"modulekg","version":' + "1" * 5000 + "}}", '{"data":NaN}', "\ufeff{}", '{"a":1}{"a":1}',
        " " * 5_000_000,
    ],
    ids=range(11),
)  # fmt: skip
def test_json_that_is_no_graph_of_ours(ending: str, content: str, tmp_path: Path) -> None:
    refused(tmp_path / f"bad.{ending}", content, "is not a graph that can be read")


@pytest.mark.parametrize(
    ("ending", "old"),
    [
        *((ending, old) for ending in ("cyjs", "jsonld") for old in ('"version": 1', '"format": "modulekg"')),
        ("cyjs", '"id": "User:who"'), ("cyjs", '"source": "Job:run"'), ("cyjs", '"type": "User"'),
        ("jsonld", '"@id": "urn:modulekg:User:who"'), ("jsonld", '"urn:modulekg:DataSet:data"'), ("jsonld", '"Job"'),
        ("jsonld", '"scheme": "structure"'), ("cyjs", '"scheme": "structure"'),
    ],
)  # fmt: skip
def test_what_stands_instead_of_a_text_is_not_written_out(ending: str, old: str, tmp_path: Path) -> None:
    text = export_contents(small(), tmp_path / f"valid.{ending}").read_text()
    assert old in text
    name = old.partition(": ")[0] + ": " if ": " in old else ""
    for deep in ("[" * 950 + "]" * 950, '{"a":' * 950 + "1" + "}" * 950, "[" + "1," * 1_000_000 + "1]", "1e5", "null"):
        refused(tmp_path / f"odd.{ending}", text.replace(old, name + deep), "is not a graph that can be read")


@pytest.mark.parametrize("ending", ["cyjs", "jsonld"])
def test_more_lists_than_memory_are_counted_first(ending: str, tmp_path: Path) -> None:
    refused(tmp_path / f"bad.{ending}", b"[" + b"[]," * 11_000_000 + b"[]]", "more than 10,000,000 lists")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    for ending in READABLE:
        path = tmp_path / f"large.{ending}"
        with path.open("wb") as file:
            file.truncate((1 << 29) + 1)
        before = peak()
        with pytest.raises(GraphFileError, match="larger than 512 MB"):
            read_contents(path)
        path.unlink()
        assert peak() - before <= (1 << 29) + MOST_BYTES


@formats
def test_depth_of_values_is_limited(ending: str, tmp_path: Path) -> None:
    path = export_contents(small(), tmp_path / f"deep.{ending}")
    quote = "&quot;" if ending == "graphml" else '"'
    text = path.read_text()
    for deep in ("[" * 40 + "]" * 40, "[" * 900 + "]" * 900):
        for old in (f"{quote}a{quote}:", '"a":', f"{quote}a{quote}: "):
            if old in text:
                refused(tmp_path / f"deeper.{ending}", text.replace(old, f"{quote}c{quote}:{deep},{old}"), "deep")
                break
        else:
            raise AssertionError("no property to change")


# ------------------------------------------------------------------ structures made to hang what reads them


def chain(length: int) -> Contents:
    """Modules within each other, as deep as they are many, each holding the next one twice."""
    model = nn.Sequential(nn.ReLU())
    base = contents_of(m=model)
    (root, leaf) = base.modules.values()
    keys = [f"{number:032x}" for number in range(length)]
    modules = {
        key: replace(root, fingerprint=key, slots=(("a", below), ("b", below)))
        for key, below in zip(keys, [*keys[1:], leaf.fingerprint], strict=True)
    }
    uses = {(key, "op"): 1 for key in (*modules, leaf.fingerprint)}
    chained = replace(base.models["m"], root=keys[0], occurrences=type(base.models["m"].occurrences)(uses))
    return Contents(modules={**modules, leaf.fingerprint: leaf}, models={"m": chained})


@formats
def test_depth_and_sharing_of_modules_take_no_time(ending: str, tmp_path: Path) -> None:
    contents = chain(2000)
    path = export_contents(contents, tmp_path / f"chain.{ending}")
    start = time.process_time()
    assert read_contents(path) == contents
    assert time.process_time() - start <= MOST_SECONDS


def test_a_name_is_shown_short_and_printable_in_an_error(tmp_path: Path) -> None:
    path = export_contents(everything(), tmp_path / "names.cyjs")
    document = json.loads(path.read_text())
    for node in document["elements"]["nodes"]:
        if node["data"]["type"] == "User":
            node["data"]["properties"] = "\x1b[2J" * 10_000
    path.write_text(json.dumps(document))
    with pytest.raises(GraphFileError) as caught:
        read_contents(path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()
