"""Versions of packages, Python, accelerator and host, for bug reports."""

from __future__ import annotations

import json
import os
import platform
import re
import site
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from modulekg_widgets.engine.plugins import plugins

DISTRIBUTION = "modulekg-widgets"
# the variables of the environment that this package reads, with their switches: any other value may be a secret
ENVIRONMENT_SETTINGS = {"MODULEKG_COLAB": ("page", "widgets"), "MODULEKG_PLUGINS": ("0", "1")}
PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NOT_INSTALLED = "not installed"
# where Jupyter looks behind the environment and the user's own folder; Debian's and Colab's pip put files there
SHARE_FOLDERS = (Path("/usr/local/share"), Path("/usr/share"))
# what shows a kernel's widgets, by a module that is loaded there or a variable that it sets
HOSTS = {"Colab": "google.colab", "marimo": "marimo"}
HOST_VARIABLES = {"VS Code": "VSCODE_PID", "JupyterHub": "JUPYTERHUB_USER"}


def show_versions(as_json: bool = False) -> None:
    """Print the versions of all that this package works with, to be copied into a bug report.

    Nothing is sent anywhere, and no path, name of a user or name of a machine is printed.

    Parameters
    ----------
    as_json : bool, default False
        Print one JSON object instead of lines.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> mk.show_versions()  # doctest: +ELLIPSIS
    modulekg-widgets     ...
    Python               ...
    """
    found = versions()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    width = max(20, *map(len, found))
    print("\n".join(f"{name:<{width}} {value}" for name, value in found.items()))


def versions() -> dict[str, str]:
    """Returns the entries of `show_versions` by name."""
    needed, optional = _requirements()
    return {
        DISTRIBUTION: _version_of(DISTRIBUTION),
        "front end": _front_end(),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs",
        "host": _host(),
        **_accelerator(),
        **{name: _version_of(name) for name in needed},
        **{name: found for name in optional if (found := _version_of(name)) != NOT_INSTALLED},
        **{f"plugin {each.name}": each.distribution + (", not loaded" if each.error else "") for each in plugins()},
        **{name: value for name, known in ENVIRONMENT_SETTINGS.items() if (value := os.environ.get(name)) in known},
    }


def _requirements() -> tuple[list[str], list[str]]:
    """The dependencies of this package and of its extras, from its metadata."""
    needed: dict[str, None] = {}
    optional: dict[str, None] = {}
    for line in requires(DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        name = PACKAGE_NAME.match(requirement)
        if name and name[0] != DISTRIBUTION:
            (optional if "extra" in marker else needed).setdefault(name[0])
    return sorted(needed), sorted(set(optional) - set(needed))


def _front_end() -> str:
    """The version of the JupyterLab extension in this environment; a mismatch is a common fault."""
    bases = [Path(base) for base in (sys.prefix, site.getuserbase()) if base]
    for share in (*(base / "share" for base in bases), *SHARE_FOLDERS):
        file = share / "jupyter" / "labextensions" / DISTRIBUTION / "package.json"
        try:
            return str(json.loads(file.read_text("utf-8"))["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return NOT_INSTALLED


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return NOT_INSTALLED


def _host() -> str:
    """The program that runs Python, as far as it can be recognised."""
    found = [host for host, module in HOSTS.items() if module in sys.modules]
    found += [host for host, variable in HOST_VARIABLES.items() if variable in os.environ]
    shell = "Jupyter kernel" if "ipykernel" in sys.modules else "IPython" if "IPython" in sys.modules else "Python"
    return ", ".join([shell, *found])


def _accelerator() -> dict[str, str]:
    """The accelerator that torch finds beside the CPU, with its driver."""
    try:
        import torch
    except (ImportError, OSError) as reason:  # a broken torch is what the report is about
        return {"accelerator": f"torch cannot be imported ({type(reason).__name__})"}
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
        return {"accelerator": f"{names} (CUDA {torch.version.cuda or torch.version.hip})"}
    return {"accelerator": "mps" if torch.backends.mps.is_available() else "none"}
