"""A real JupyterLab server on loopback, with configuration, data and run-time folders of its own."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat

from browser import forked_kernels

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def code_notebook(cells: Sequence[str]) -> Any:
    """A notebook of code cells for the kernel `python3`."""
    content = nbformat.v4.new_notebook()
    content.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    return content


class JupyterServer:
    """A server process for `application` ("jupyterlab", "notebook" or "voila"); stop() ends it and its kernels.

    JupyterLab's kernels are forks, which start at once; those of the others import torch as a user's do. A later server
    in the same folder has the notebooks of the one before, and trusts those that were saved there.
    """

    def __init__(self, folder: Path, application: str = "jupyterlab") -> None:
        self.application = application
        self.notebooks = folder / "notebooks"
        self.log = folder / "server.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.endings = ThreadPoolExecutor(max_workers=4)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.notebooks.mkdir(parents=True, exist_ok=True)
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        environment = {**os.environ, **{name: str(folder / value) for name, value in own.items()}}
        self.silence_news(folder / "settings")
        # the kernel and the lab extension of the environment that runs the tests, not those of the user
        environment["JUPYTER_PREFER_ENV_PATH"] = "1"
        commands = [["-m", application, *self.options()]]
        if application == "jupyterlab":
            environment["JUPYTER_PATH"] = str(folder / "forked")
            commands.append(self.fork_kernels(folder / "forked"))
        with self.log.open("wb") as log:
            for command in commands:
                process = subprocess.Popen(
                    [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder
                )
                self.processes.append(process)
        self.wait_until_up()

    def fork_kernels(self, folder: Path) -> list[str]:
        """Replace the kernel `python3`; arguments of the process that forks the new one."""
        from ipykernel.kernelspec import get_kernel_dict

        program, address = forked_kernels.__file__, str(folder / "socket")
        spec = get_kernel_dict()
        spec["argv"] = [sys.executable, "-I", "-S", program, "start", address, "{connection_file}"]
        spec["interrupt_mode"] = "message"
        file = folder / "kernels" / "python3" / "kernel.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(spec), "utf-8")
        Path(address).unlink(missing_ok=True)
        return [program, "serve", address]

    def silence_news(self, settings: Path) -> None:
        """JupyterLab asks on its first start whether it may fetch news; the question would cover the page."""
        file = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}), "utf-8")

    def options(self) -> list[str]:
        port = self.url.rpartition(":")[2]
        if self.application == "voila":
            return ["--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1", f"--Voila.root_dir={self.notebooks}"]
        return [
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
            f"--ServerApp.root_dir={self.notebooks}",
            "--IdentityProvider.token=",
            "--ServerApp.disable_check_xsrf=True",
            f"--{'LabApp' if self.application == 'jupyterlab' else 'JupyterNotebookApp'}.expose_app_in_browser=True",
            "--LabApp.news_url=None",
        ]

    def wait_until_up(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.processes[0].poll() is None:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.application} did not start:\n{self.log.read_text(errors='replace')[-4000:]}")

    def write(self, name: str, content: Any) -> None:
        # without one of them every kernel would be waited for in vain
        ended = [process.args for process in self.processes if process.poll() is not None]
        assert not ended, f"{ended} ended:\n{self.log.read_text(errors='replace')[-4000:]}"
        nbformat.write(content, self.notebooks / name)

    def request(self, method: str, path: str) -> Any:
        """The server's answer to an API request, decoded."""
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def shut_down_kernels(self) -> None:
        """Ask for the end of all kernels and return; a kernel with torch takes seconds to leave."""
        for session in self.request("GET", "/api/sessions"):
            self.endings.submit(self.request, "DELETE", f"/api/sessions/{session['id']}")

    def stop(self) -> None:
        self.endings.shutdown(wait=True)
        for process in self.processes:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
