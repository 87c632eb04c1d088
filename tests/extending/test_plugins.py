"""Plugins are loaded once, in one order, whoever asks first; what fails is told in one line and hurts nothing else."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import modulekg_widgets as mk
from extending.packages import laid_out, run_python
from modulekg_widgets.engine import plugins
from modulekg_widgets.engine.plugins import Loader, Plugin
from modulekg_widgets.engine.pruning.importance.importance import criteria

mk.plugins()  # what is installed here is loaded before the tests lay out packages of their own


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that is on the path, with a loader that has not run; what is registered is gone after."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(plugins.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(plugins, "_loader", Loader())
    monkeypatch.setattr(criteria, "entries", criteria.entries)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


Warnings = Callable[[], list[str]]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Warnings:
    """The warnings since the start of the test."""
    caplog.set_level(logging.DEBUG, "modulekg_widgets")
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def own(found: list[Plugin]) -> dict[str, str | None]:
    return {plugin.name: plugin.error for plugin in found}


REGISTERS = "import modulekg_widgets as mk\nmk.importance({name!r})(lambda group: range(group.size))\n"


def test_a_module_and_a_function_are_loaded_in_one_order(site: Path, warned: Warnings) -> None:
    function = "import modulekg_widgets as mk\ndef register():\n    mk.importance('by_function')(lambda group: None)\n"
    laid_out(site, "zz-last", {"b": "zz_module"}, zz_module=REGISTERS.format(name="by_module"))
    laid_out(site, "aa-first", {"z": "aa_module:register", "a": "aa_module"}, aa_module=function)
    assert "by_module" not in criteria
    found = mk.plugins()
    assert [(each.distribution, each.name, each.target, each.error) for each in found] == [
        ("aa-first 1.0", "a", "aa_module", None),
        ("aa-first 1.0", "z", "aa_module:register", None),
        ("zz-last 1.0", "b", "zz_module", None),
    ]
    assert {"by_module", "by_function"} <= set(criteria)
    assert warned() == []
    assert repr(found[0]).startswith("<Plugin a of aa-first 1.0: loaded in 0.0")
    found.clear()
    assert len(mk.plugins()) == 3


FAILING = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero (raises, line 1)"),
    "exits": ("import sys\n\nsys.exit(3)", "SystemExit: 3 (exits, line 3)"),
    "unparsable": ("def :", "SyntaxError: invalid syntax (unparsable.py, line 1)"),
    "unprintable": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "E (unprintable, line 3)",
    ),
    "lacking": ("import a_package_that_is_not_there", "ModuleNotFoundError: No module named 'a_package_that_is_not"),
    "hostile": ("raise ValueError('a\\nb\\x1b[2J\\u202e' + 999 * 'x')", r"ValueError: a b\x1b[2J\u202exxx"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_plugin_that_fails_is_told_once_and_the_next_is_loaded(name: str, site: Path, warned: Warnings) -> None:
    code, reason = FAILING[name]
    laid_out(site, "bad-package", {"mine": name}, **{name: code})
    laid_out(site, "good-package", {"good": "good_module"}, good_module=REGISTERS.format(name="good"))
    bad, good = mk.plugins()
    assert good.error is None
    assert "good" in criteria
    assert bad.error is not None
    assert reason in bad.error
    assert len(bad.error) < 600
    assert warned() == [f"the plugin mine of bad-package 1.0 is not loaded: {bad.error}"]
    assert warned()[0].isprintable()
    assert "not loaded" in repr(bad)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("module:number", "TypeError: 'module:number' is of type int: name a module, or a function"),
        ("module:nothing", "AttributeError: module 'module' has no attribute 'nothing'"),
        ("module:needs", "TypeError: needs() missing 1 required positional argument: 'more'"),
        ("module.inner", "ModuleNotFoundError"),
        ("not a module", "ValueError: 'not a module' names nothing: write 'package.module'"),
        ("", "ValueError: '' names nothing"),
    ],
)
def test_a_target_that_is_none_is_told(target: str, reason: str, site: Path, warned: Warnings) -> None:
    laid_out(site, "bad-package", {"mine": target}, module="number = 3\ndef needs(more): ...\n")
    (found,) = mk.plugins()
    assert found.error is not None
    assert reason in found.error
    assert len(warned()) == 1


def test_of_two_that_register_a_name_the_first_stays_whole(site: Path, warned: Warnings) -> None:
    both = "import modulekg_widgets as mk\n@mk.importance('own', 'taken')\ndef second(group): ...\n"
    after = "mk.importance('after')(second)\n"
    laid_out(site, "a-package", {"first": "first_module"}, first_module=REGISTERS.format(name="taken"))
    laid_out(site, "b-package", {"second": "second_module"}, second_module=both + after)
    first, second = mk.plugins()
    assert first.error is None
    assert second.error == (
        "DuplicateNameError: the importance 'taken' is registered already: choose another name (second_module, line 2)"
    )
    assert warned() == [f"the plugin second of b-package 1.0 is not loaded: {second.error}"]
    assert criteria["taken"].__module__ == "first_module"
    assert {"own", "after"} & set(criteria) == set()  # all names of a decorator or none


def test_a_package_that_is_on_the_path_twice_is_loaded_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = "import builtins\nbuiltins.mkg_count = getattr(builtins, 'mkg_count', 0) + 1\n"
    older = site / "older"
    laid_out(site, "My.Package", {"mine": "counting"}, counting=count)
    laid_out(older, "my-package", {"mine": "counting", "more": "counting"}, counting=count)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site), str(older)])
    assert [(each.distribution, each.name) for each in mk.plugins()] == [("My.Package 1.0", "mine")]
    mk.plugins()
    plugins.load()
    import builtins

    assert vars(builtins).pop("mkg_count") == 1


@pytest.mark.parametrize(
    "content", [b"[modulekg_widgets.plugins]\nno equals sign\n", b"\xff\xfe[modulekg", b"[", b"a=b"]
)
def test_damaged_metadata_stops_nothing(content: bytes, site: Path, warned: Warnings) -> None:
    laid_out(site, "damaged", {})
    (site / "damaged-1.0.dist-info" / "entry_points.txt").write_bytes(content)
    (site / "nameless-1.0.dist-info").mkdir()
    laid_out(site, "good-package", {"good": "good_module"}, good_module=REGISTERS.format(name="good"))
    assert own(mk.plugins()) == {"good": None}
    assert len(warned()) == (b"plugins" in content)
    assert all("the plugins of damaged are not loaded: its metadata cannot be read" in text for text in warned())


def test_a_package_without_metadata_has_its_plugins_loaded(site: Path) -> None:
    laid_out(site, "nameless", {"mine": "good_module"}, good_module=REGISTERS.format(name="good"))
    (site / "nameless-1.0.dist-info" / "METADATA").unlink()
    assert own(mk.plugins()) == {"mine": None}


def test_the_environment_switches_plugins_off(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODULEKG_PLUGINS", "0")
    laid_out(site, "good-package", {"good": "good_module"}, good_module=REGISTERS.format(name="good"))
    assert mk.plugins() == []
    assert "good" not in criteria


def test_an_interrupt_reaches_the_user_and_the_others_are_loaded_at_the_next_use(site: Path) -> None:
    laid_out(site, "a-package", {"slow": "slow_module"}, slow_module="raise KeyboardInterrupt")
    laid_out(site, "b-package", {"good": "good_module"}, good_module=REGISTERS.format(name="good"))
    with pytest.raises(KeyboardInterrupt):
        mk.plugins()
    assert own(mk.plugins()) == {"slow": "it was interrupted", "good": None}


# ------------------------------------------------------------------ threads


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(call()), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return found


def test_all_threads_wait_for_a_slow_plugin_which_is_loaded_once(site: Path) -> None:
    slow = "import time\ntime.sleep(0.3)\n" + REGISTERS.format(name="slow")
    laid_out(site, "slow-package", {"slow": "slow_module"}, slow_module=slow)

    def seen() -> tuple[bool, bool]:
        return plugins.load(), "slow" in criteria

    assert in_threads(5, seen) == [(True, True)] * 5
    (found,) = mk.plugins()
    assert found.error is None
    assert found.seconds >= 0.3


def test_a_plugin_may_use_this_package_while_it_is_loaded(site: Path) -> None:
    code = "import modulekg_widgets as mk\nseen = mk.plugins()\nfrom modulekg_widgets import Monitor, trace\n"
    called = "import modulekg_widgets as mk\nseen = []\ndef register():\n    seen.append(mk.plugins())\n"
    laid_out(site, "a-package", {"first": "first_module"}, first_module=code)
    laid_out(site, "b-package", {"second": "second_module:register"}, second_module=called)
    start = time.monotonic()
    assert own(mk.plugins()) == {"first": None, "second": None}
    assert time.monotonic() - start < plugins.MAX_WAIT / 2
    assert sys.modules["first_module"].seen == []
    assert own(*sys.modules["second_module"].seen) == {"first": None}


def test_two_threads_that_need_each_others_imports_do_not_wait_for_ever(site: Path) -> None:
    """One loads the plugin; the other imports what the plugin imports, and uses this package there."""
    shared = "import threading, time\nentered = True\ntime.sleep(0.3)\nfrom modulekg_widgets.engine import plugins\n"
    shared += "answer = plugins.load()\n"
    waits = "import sys, time\nwhile 'shared_module' not in sys.modules: time.sleep(0.01)\nimport shared_module\n"
    laid_out(site, "a-package", {"mine": "waiting_module"}, waiting_module=waits, shared_module=shared)
    start = time.monotonic()
    loading = threading.Thread(target=plugins.load, daemon=True)
    loading.start()
    import shared_module

    loading.join(20)
    assert not loading.is_alive()
    assert shared_module.answer is False
    assert time.monotonic() - start < plugins.MAX_WAIT / 2
    assert own(mk.plugins()) == {"mine": None}


def test_nobody_waits_longer_than_the_limit(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_WAIT", 0.05)
    code = (
        "import threading\nfrom modulekg_widgets.engine import plugins\nanswers = []\n"
        "thread = threading.Thread(target=lambda: answers.append(plugins.load()))\nthread.start()\nthread.join()\n"
    )
    laid_out(site, "a-package", {"mine": "joining_module"}, joining_module=code)
    assert plugins.load()
    assert sys.modules["joining_module"].answers == [False]


# ------------------------------------------------------------------ a process of its own

PROBE = """
import sys
import modulekg_widgets as mk
assert mk.__version__
print("after import:", "probed" in sys.modules, "modulekg_widgets.engine.plugins" in sys.modules)
error = mk.ModuleKGError
print("after use:", "probed" in sys.modules, vars(mk)["ModuleKGError"] is error)
print(*sorted(name for name in sys.modules if name in ("torch", "importlib.metadata")))
"""


def test_importing_loads_nothing_and_the_first_name_loads_all(tmp_path: Path) -> None:
    code = "import modulekg_widgets as mk\nmk.ModuleKGError\nassert 'ModuleKGError' not in vars(mk)\n1 / 0\n"
    laid_out(tmp_path, "a-package", {"mine": "probed"}, probed="")
    laid_out(tmp_path, "b-package", {"bad": "bad_module"}, bad_module=code)
    done = run_python("-c", PROBE, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["after import: False False", "after use: True True", "importlib.metadata"]
    message = (
        "the plugin bad of b-package 1.0 is not loaded: ZeroDivisionError: division by zero (bad_module, line 4)\n"
    )
    assert done.stderr == message
