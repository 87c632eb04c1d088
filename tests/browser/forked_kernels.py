"""Kernels that start at once, because a process that has torch imported forks them.

`serve ADDRESS` is that process. `start ADDRESS CONNECTION_FILE` is what Jupyter runs as its kernel: it stands for the
fork, ends as the fork ends, and takes it along when it is killed itself.
"""

import json
import os
import select
import signal
import socket
import sys
from typing import Any


def start(address: str, connection_file: str) -> int:
    """Ask for a kernel in this process's folder and environment, and wait for its exit code."""
    wanted = {"file": connection_file, "folder": os.getcwd(), "environment": dict(os.environ)}
    server = os.getppid()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"."], [0, 1, 2])
        connection.sendall(json.dumps(wanted).encode() + b"\n")
        while not select.select([connection], [], [], 1)[0]:
            if os.getppid() != server:
                return 1
        return int(connection.recv(16) or b"1")


def serve(address: str) -> None:
    """Fork a kernel for each connection; returns in the forks only."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        import ipykernel.kernelapp  # noqa: F401
        import torchvision  # noqa: F401

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                return keep(connection)
            connection.close()


def keep(connection: socket.socket) -> None:
    """Fork the kernel and tell its exit code; without someone to tell it, the kernel is killed."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as text:
        wanted = json.loads(text.readline())
    kernel = os.fork()
    if kernel == 0:
        connection.close()
        return be_kernel(wanted, streams)
    ended = status = 0
    while not ended:
        if select.select([connection], [], [], 0.05)[0]:
            os.kill(kernel, signal.SIGKILL)
            os._exit(0)
        ended, status = os.waitpid(kernel, os.WNOHANG)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def be_kernel(wanted: dict[str, Any], streams: list[int]) -> None:
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = ["ipykernel_launcher", "-f", wanted["file"]]
    launch_new_instance()


if __name__ == "__main__":
    if sys.argv[1] == "start":
        sys.exit(start(*sys.argv[2:]))
    # kernels shall not find the modules of the tests
    del sys.path[0]
    serve(sys.argv[2])
