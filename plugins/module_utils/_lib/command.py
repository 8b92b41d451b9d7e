# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# run_command has no time limit, this has:
# pylint: disable=ansible-bad-function
"""Run one command with a time limit: the one place from which the collection does.

``AnsibleModule.run_command`` has no time limit, and a vendor tool that hangs on broken hardware must never hang a
play.  The outcome is always a (rc, stdout, stderr) triple; nothing raises.

``subprocess.run`` does not do: after its time limit it kills, and then waits without one for what may hang in the
kernel (a driver whose device is gone), where no signal arrives.  And it keeps all that a command writes, which may be
gigabytes: a journal holds lines of any length, by whoever can write one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

#: seconds that a killed command has to be gone; one that is not is left behind
KILLED = 1.0
#: the exit status of a command that ran past its limit, as timeout(1) has it
TIMED_OUT = 124
#: bytes that are kept of an output: the last ones
MOST = 32 << 20
_BLOCK = 1 << 16


def c_environment() -> dict[str, str]:
    """The own environment in the C locale, with the folders of administrators' commands at the end of the path."""
    environment = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    environment["PATH"] = environment.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    return environment


def run_limited(
    argv: Sequence[str],
    timeout: float,
    stdin: str | None = None,
    most: int = MOST,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """Run ``argv`` in this environment, in :func:`c_environment` if none is given.

    rc 127 when it is not installed, 126 when it cannot be run, :data:`TIMED_OUT` when it ran past ``timeout`` seconds.
    Of each output the last ``most`` bytes.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=c_environment() if environment is None else environment,
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except OSError as error:
        return 126, "", f"{argv[0]}: {error.strerror}"
    try:
        out, err = exchange(process, timeout, None if stdin is None else stdin.encode(), most)
    except subprocess.TimeoutExpired:
        end(process)
        return TIMED_OUT, "", f"{argv[0]}: no answer within {timeout:g} s"
    except BaseException:  # the caller's own time is up
        process.kill()
        raise
    return process.returncode, _text(out), _text(err)


def run_alone(
    argv: Sequence[str],
    timeout: float,
    stdin: str,
    environment: Mapping[str, str],
    account: Mapping[str, Any] | None = None,
    handles: Sequence[int] = (),
    merged: bool = False,
) -> tuple[int, str, str]:
    """Run a program and all that it starts in a session of its own, which ends with it after ``timeout`` seconds.

    ``account`` has the ``user``, ``group`` and ``extra_groups`` to run it as; ``handles`` are files that it inherits.
    ``merged`` makes one output of both, in the order in which they were written.
    Raises OSError where it cannot be started, ``subprocess.TimeoutExpired`` where it did not end in time.
    """
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
        pass_fds=handles,
        **(account or {}),
    )
    try:
        out, err = exchange(process, timeout, stdin.encode())
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        end(process)
        raise
    return process.returncode, _text(out), _text(err)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def exchange(
    process: subprocess.Popen[bytes], timeout: float, stdin: bytes | None = None, most: int = MOST
) -> tuple[bytes, bytes]:
    """Give a process its input and read its outputs, all of them pipes, to their ends: the last ``most`` bytes of each.

    Raises ``subprocess.TimeoutExpired``; ending the process is left to the caller then.
    """
    end = time.monotonic() + timeout
    given = memoryview(stdin or b"")
    kept = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
    with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as open_pipes:
        for stream in kept:
            open_pipes.callback(stream.close)
            waiting.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            # it may have ended without reading, which shows when what is left is flushed
            open_pipes.callback(_close, process)
            os.set_blocking(process.stdin.fileno(), False)
            waiting.register(process.stdin, selectors.EVENT_WRITE)
        while waiting.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, timeout)
            for key, _events in waiting.select(left):
                if key.fileobj is process.stdin:
                    given = _give(key.fd, given)
                    if not given:
                        waiting.unregister(process.stdin)
                        _close(process)
                elif block := os.read(key.fd, _BLOCK):
                    tail = kept[key.fileobj]  # type: ignore[index]  # one of the two that were registered
                    tail += block
                    if len(tail) > most + (most >> 2) + _BLOCK:
                        del tail[:-most]
                else:
                    waiting.unregister(key.fileobj)
        process.wait(max(0.0, end - time.monotonic()))
    out, err = (bytes(kept[stream][-most:]) if stream else b"" for stream in (process.stdout, process.stderr))
    return out, err


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process; one that is not gone soon is left behind."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED)


def _give(descriptor: int, given: memoryview) -> memoryview:
    """What is left to give; nothing where nobody reads it."""
    try:
        return given[os.write(descriptor, given[:_BLOCK]) :] if given else given
    except BlockingIOError:
        return given
    except BrokenPipeError:
        return given[:0]


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
