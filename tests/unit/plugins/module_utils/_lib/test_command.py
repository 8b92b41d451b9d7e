# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a vendor's tool does, the caller gets an answer, and in time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import command
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch, netplan_job
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container, serving


def test_what_a_command_says_and_reads() -> None:
    code = "import os, sys; sys.stderr.write(os.environ['LC_ALL']); print(sys.stdin.read()); sys.exit(3)"
    assert run_limited([sys.executable, "-c", code], 20, "in") == (3, "in\n", "C")
    assert run_limited([sys.executable, "-c", code], 20) == (3, "\n", "C")


def test_output_that_is_no_text() -> None:
    code = "import sys; sys.stdout.buffer.write(b'a' + bytes([255]))"
    assert run_limited([sys.executable, "-c", code], 20) == (0, "a\ufffd", "")


def test_a_command_that_reads_nothing_of_its_input() -> None:
    assert run_limited([sys.executable, "-c", ""], 20, "x" * 1_000_000)[0] == 0


def test_a_command_that_is_not_there() -> None:
    assert run_limited(["/nonexistent/ibdev2netdev"], 20) == (127, "", "/nonexistent/ibdev2netdev: not installed")


@pytest.mark.parametrize(("mode", "words"), [(0o755, "Exec format error"), (0o644, "Permission denied")])
def test_a_file_that_cannot_be_run(tmp_path: Path, mode: int, words: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text("echo no interpreter is named\n")
    tool.chmod(mode)
    assert run_limited([str(tool)], 20) == (126, "", f"{tool}: {words}")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    assert run_limited([str(tmp_path)], 20)[0] == 126


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "late"
    assert run_limited(["sh", "-c", f"sleep 60; touch {mark}"], 0.2) == (124, "", "sh: no answer within 0.2 s")
    # nobody is left who would touch it
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [words for words in running if str(mark).encode() in words]
    assert not mark.exists()


@pytest.mark.parametrize(
    "run",
    [
        lambda: run_limited(["sleep", "60"], 0.2),
        lambda: netplan_job.run(["sleep", "60"], 0.2),
        lambda: serving.run(["sleep", "60"], 0.2),
        lambda: container.run(["sleep", "60"], 0.2),
        lambda: firewall_watch.run(["sleep", "60"]),
    ],
)
def test_a_command_that_no_signal_reaches_holds_nobody(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], tuple[int, str, str]]
) -> None:
    """As one that hangs in the kernel, on a device that is gone; by every runner that there is."""
    monkeypatch.setattr(command, "KILLED", 0.2)
    monkeypatch.setattr(firewall_watch, "COMMAND_LIMIT", 0.2)
    hung: list[subprocess.Popen[str]] = []

    def unheard(process: subprocess.Popen[str]) -> None:
        hung.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", unheard)
    began = time.monotonic()
    assert run()[0] == 124
    assert time.monotonic() - began < 30
    monkeypatch.undo()
    hung[0].kill()
    hung[0].wait()


def test_of_an_endless_output_the_end_is_kept_and_no_more() -> None:
    """A journal may hold lines of megabytes, by whoever can write one."""
    code = "import sys; [sys.stdout.write('x' * 65536) for _ in range(200)]; sys.stderr.write('y' * 9); print('end')"
    rc, out, err = run_limited([sys.executable, "-c", code], 60, most=1000)
    assert (rc, len(out), err) == (0, 1000, "y" * 9)
    assert out.endswith("xxend\n")


def test_memory_does_not_grow_with_an_output() -> None:
    """Of 300 MB of output, 1 MB is kept; all of it in memory would be more than this process is given."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import command;"
        "resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20));"
        "rc, out, _err = command.run_limited(['head', '-c', '300000000', '/dev/zero'], 60, most=1 << 20);"
        "print(rc, len(out))"
    )
    folder = str(Path(command.__file__).parent)
    assert run_limited([sys.executable, "-c", code, folder], 120) == (0, "0 1048576\n", "")


def test_input_and_output_larger_than_a_pipe_pass_each_other() -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    assert run_limited(["cat"], 60, text) == (0, text, "")


def test_a_program_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """The caller comes back in time, also where a child of it holds the pipes open."""
    code = (
        "import subprocess, sys; subprocess.Popen(['sleep', '77.25']); print('begun', flush=True); sys.stdin.read(); "
    )
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        command.run_alone([sys.executable, "-c", code], 1.0, "", {})
    assert time.monotonic() - begun < 10
    left = subprocess.run(["pgrep", "-f", "sleep 77[.]25"], check=False, capture_output=True, text=True)
    assert left.stdout == ""


def test_a_program_alone_has_its_environment_and_one_output_where_that_is_wanted() -> None:
    code = (
        "import os, sys; print(os.getcwd(), sorted(os.environ), sys.stdin.read(), flush=True); sys.stderr.write('no')"
    )
    told = (0, "/ ['A'] in\n", "no")
    environment = {"A": "1", "LC_CTYPE": "C"}
    code = code.replace("sorted(os.environ)", "sorted(set(os.environ) - {'LC_CTYPE'})")
    assert command.run_alone([sys.executable, "-c", code], 20, "in", environment) == told
    assert command.run_alone([sys.executable, "-c", code], 20, "in", environment, merged=True) == (
        0,
        told[1] + "no",
        "",
    )
    with pytest.raises(FileNotFoundError):
        command.run_alone(["/nonexistent/python"], 1, "", environment)
