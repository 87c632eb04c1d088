"""What a page may write and read: plans below one folder, by names that end in .json, and through no link."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import PlanFileError
from modulekg_widgets.engine.pruning.plan.saved import plan_file
from modulekg_widgets.engine.pruning.plan.saved.plan_file import PlanFolder
from modulekg_widgets.engine.safe_files import AtomicFile
from widgets.mask_page import Page

X = torch.zeros(2, 4)
SECRET = "years of work"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))


@pytest.fixture(scope="module")
def plan() -> mk.PruningPlan:
    return mk.plan(mk.trace(net(), X), ratio=0.5)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, beside what no page may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "thesis.json").write_text(SECRET, "utf-8")
    folder = tmp_path / "inside"
    (folder / "runs").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def editor(inside: Path, plan: mk.PruningPlan) -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(net(), X, plan=plan)
    yield made
    made.close()


@pytest.fixture
def page(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(editor, monkeypatch)


def everything(folder: Path) -> dict[str, str]:
    """All that is below a folder: files with their content, links with where they lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kept = os.readlink(path) if path.is_symlink() else path.read_text("utf-8") if path.is_file() else "/"
        found[path.relative_to(folder).as_posix()] = kept
    return found


def refused(page: Page, action: str, path: Any) -> str:
    """What the page hears; nothing on the disk and nothing of the editor changes."""
    root, before = Path.cwd().parent, (page.editor.path, page.editor.plan)
    files = everything(root)
    (answer,) = page.say({"type": action, "path": path})
    assert (answer["type"], answer["action"]) == ("failed", action)
    assert everything(root) == files
    assert (page.editor.path, page.editor.plan) == before
    return answer["text"]


def test_plans_are_saved_and_loaded(editor: mk.MaskEditor, page: Page, inside: Path) -> None:
    for path in ("mine.modulekg.json", "runs/mine.json", str(inside / "whole.json"), "./runs//dots.json"):
        assert page.say({"type": "save", "path": path})[0] == {
            "type": "done",
            "action": "save",
            "text": f"Saved as {path}",
        }
        assert editor.path == path
        drawn = editor.plan
        assert mk.load_plan(inside / path) == drawn
        editor.plan = None
        assert page.say({"type": "load", "path": path})[-1]["type"] == "done"
        assert editor.plan == drawn
        assert page.say({"type": "save", "path": path})[0]["type"] == "done"  # a plan may be replaced
        editor.plan = None
        editor.load()
        assert editor.plan == drawn
        editor.save()
    assert sorted(everything(inside)) == [
        "mine.modulekg.json", "runs", "runs/dots.json", "runs/mine.json", "whole.json"
    ]  # fmt: skip


def test_the_folder_that_python_gave(inside: Path, plan: mk.PruningPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inside.parent / "given"
    given.mkdir()
    for options in ({"folder": given}, {"path": str(given / "offered.json")}, {"folder": "../given"}):
        editor = mk.MaskEditor(net(), X, plan=plan, **options)
        page = Page(editor, monkeypatch)
        assert page.say({"type": "save", "path": "a.json"})[0]["type"] == "done"
        assert page.say({"type": "save", "path": str(given / "b.json")})[0]["type"] == "done"
        assert "is not below" in refused(page, "save", str(inside / "c.json"))
        editor.save()
        assert set(everything(given)) == {"a.json", "b.json"}
        editor.path = "d.json"  # by Python, relative to the same folder
        editor.save()
        editor.load()
        assert (given / "d.json").is_file()
        editor.close()
        for path in given.iterdir():
            path.unlink()
    assert everything(inside) == {"runs": "/"}


@pytest.mark.parametrize("action", ["save", "load"])
@pytest.mark.parametrize(
    "path",
    ["../outside/new.json", "../outside/thesis.json", "runs/../../outside/new.json", "runs/../new.json", "..",
     "../inside/new.json", "/new.json", "/dev/shm/new.json", "//new.json", "~/../x.json\n/../../x.json"],
)  # fmt: skip
def test_no_name_leads_out(page: Page, action: str, path: str) -> None:
    assert "is not below" in refused(page, action, path)


@pytest.mark.parametrize("action", ["save", "load"])
def test_an_absolute_path_beside_the_folder(page: Page, inside: Path, action: str) -> None:
    for outside in (inside.parent / "outside", inside.with_name("inside-too"), inside / ".." / "outside"):
        for name in ("thesis.json", "new.json"):
            assert "is not below" in refused(page, action, f"{outside}/{name}")


@pytest.mark.parametrize("action", ["save", "load"])
@pytest.mark.parametrize(
    "path",
    ["plan", "plan.py", "plan.json.py", ".json", "runs/.json", "plan.json~", "plan.JSON", "plan.json/x", "plan.json "],
)  # fmt: skip
def test_only_json(page: Page, action: str, path: str) -> None:
    assert "does not end in .json" in refused(page, action, path)


@pytest.mark.parametrize("action", ["save", "load"])
@pytest.mark.parametrize(
    "path",
    [None, 3, "", "  ", ["a.json"], {"a": 1}, "a\0.json", "runs\0/a.json", "x" * 300 + ".json", "x/" * 3000 + "a.json",
     "\ud800.json", "absent/a.json", "runs/absent/a.json", b"a.json"],
)  # fmt: skip
def test_names_that_no_file_can_have(page: Page, action: str, path: Any) -> None:
    assert refused(page, action, path)


def linked(inside: Path) -> dict[str, Path]:
    """Names below the folder with a link on the way, and where they lead."""
    outside = inside.parent / "outside"
    (inside / "folder").symlink_to(outside)
    (inside / "runs" / "deep").symlink_to("../../outside")
    (inside / "file.json").symlink_to(outside / "thesis.json")
    (inside / "dangling.json").symlink_to(outside / "new.json")
    (inside / "loop.json").symlink_to("loop.json")
    (inside / "within").symlink_to("runs")
    (inside / "proc").symlink_to("/proc/self/cwd")
    return {
        "folder/thesis.json": outside / "thesis.json", "folder/new.json": outside / "new.json",
        "runs/deep/new.json": outside / "new.json", "file.json": outside / "thesis.json",
        "dangling.json": outside / "new.json", "loop.json": inside, "within/new.json": inside / "runs" / "new.json",
        "proc/new.json": inside / "new.json",
    }  # fmt: skip


@pytest.mark.parametrize("handles", [True, False])
def test_no_link_is_followed(
    page: Page, inside: Path, plan: mk.PruningPlan, handles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        plan_file.HAS_DIRECTORY_HANDLES
    )  # this system opens files by the handle of their folder, others go another way
    monkeypatch.setattr(plan_file, "HAS_DIRECTORY_HANDLES", handles)
    links = linked(inside)
    for name in links:
        for action in ("save", "load"):
            refused(page, action, name)
    plan.save(inside.parent / "outside" / "thesis.json")  # now there is a plan behind the links
    for name in links:
        for action in ("save", "load"):
            refused(page, action, name)
    assert page.say({"type": "save", "path": "runs/mine.json"})[0]["type"] == "done"


def test_loading_does_not_tell_what_there_is(page: Page, inside: Path) -> None:
    links = linked(inside)
    (inside / "notes.json").write_text('{"format": "secret"}', "utf-8")
    (inside / "broken.json").write_text(SECRET, "utf-8")
    (inside / "folder.json").mkdir()
    os.mkfifo(inside / "pipe.json")
    others = ("notes.json", "broken.json", "none.json", "runs/none.json", "folder.json", "pipe.json")
    said = {refused(page, "load", name).replace(name, "…") for name in (*links, *others)}
    assert said == {"… cannot be read as a plan: choose another name; mk.load_plan in Python says more"}
    outside = {
        refused(page, "load", f"../{name}").replace(name, "…") for name in ("outside/thesis.json", "none/none.json")
    }
    assert len(outside) == 1


def test_a_click_overwrites_no_file_of_another_kind(page: Page, inside: Path) -> None:
    for content in (SECRET, "", "{}", '{"format": "modulekg-plan"}'):
        (inside / "thesis.json").write_text(content, "utf-8")
        assert "is not a plan: choose another name" in refused(page, "save", "thesis.json")
    (inside / "folder.json").mkdir()
    os.mkfifo(inside / "pipe.json")
    for name in ("folder.json", "pipe.json"):
        assert "is not a plan" in refused(page, "save", name)


def test_python_goes_where_it_wants(editor: mk.MaskEditor, inside: Path) -> None:
    outside = inside.parent / "outside" / "plan"
    editor.save(outside)
    editor.load(outside)
    with pytest.raises(PlanFileError):
        editor.load(inside / "none.json")


@pytest.mark.parametrize("path", ["../outside/new.json", "/tmp/new.json", "thesis", 3, None])
def test_the_name_that_a_page_sets_is_checked_too(editor: mk.MaskEditor, page: Page, path: Any) -> None:
    """Or a later `editor.save()` would write where the page wants."""
    offered = editor.path
    editor.set_state({"path": path})
    assert editor.path == offered
    assert page.heard[-1][0]["type"] == "failed"


def test_a_name_of_the_page_follows_no_link_for_python_either(editor: mk.MaskEditor, inside: Path) -> None:
    (inside / "file.json").symlink_to(inside.parent / "outside" / "thesis.json")
    (inside / "notes.json").write_text(SECRET, "utf-8")
    files = everything(inside.parent)
    for name in ("file.json", "notes.json"):
        editor.set_state({"path": name})
        assert editor.path == name
        for act in (editor.save, editor.load):
            with pytest.raises(PlanFileError):
                act()
    assert everything(inside.parent) == files


@pytest.mark.parametrize("was_there", [False, True])
def test_a_file_that_comes_between_the_look_and_the_writing_stays(
    was_there: bool, inside: Path, plan: mk.PruningPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, path = PlanFolder(), inside / "a.json"
    if was_there:
        plans.save(plan, "a.json")
    opened = AtomicFile.open

    def comes(self: AtomicFile) -> Any:
        path.unlink(missing_ok=True)
        path.write_text(SECRET, "utf-8")
        return opened(self)

    monkeypatch.setattr(AtomicFile, "open", comes)
    with pytest.raises(PlanFileError, match="cannot be written"):
        plans.save(plan, "a.json")
    assert everything(inside) == {"a.json": SECRET, "runs": "/"}


def test_a_folder_that_becomes_a_link_meanwhile(inside: Path, plan: mk.PruningPlan) -> None:
    """Somebody changes a folder into a link and back, all the time; nothing ever arrives where it leads."""
    outside, runs, aside, link = inside.parent / "outside", inside / "runs", inside / "aside", inside / "link"
    link.symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            runs.rename(aside)
            link.rename(runs)
            runs.rename(link)
            aside.rename(runs)

    thread = threading.Thread(target=swap)
    thread.start()
    plans, written = PlanFolder(), 0
    try:
        for number in range(1500):
            try:
                plans.save(plan, f"runs/{number}.json")
                written += 1
            except PlanFileError:
                pass
    finally:
        done.set()
        thread.join()
    assert everything(outside) == {"thesis.json": SECRET}
    assert written == len(list(runs.iterdir())) > 0


def test_a_working_folder_that_is_gone(page: Page, inside: Path) -> None:
    (inside / "runs").rmdir()
    inside.rmdir()
    for action in ("save", "load"):
        (answer,) = page.say({"type": action, "path": "a.json"})
        assert answer["type"] == "failed"
