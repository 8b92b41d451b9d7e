# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import random
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Log, diagnose
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import sandbox
from sparklab import LabError, gpu, inventory

from tools import marked
from tools.faults import faults
from tools.gpu import __main__ as make_gpu
from tools.gpu import (
    boots,
    bundle,
    byhand,
    clusters,
    cores,
    load,
    pollers,
    price,
    ring,
    start,
    suite,
    table,
    trim,
    wheels,
)
from tools.playbooks import TOP

DESCRIBED = """\
python 3.12
machine x86_64
glibc 2.39
gpu 9.0, NVIDIA H200, 580.159.04
gpu 9.0, NVIDIA H200, 580.159.04
deb bash 5.2.21-2ubuntu4 amd64 ii
deb gone 1.0 amd64 rc
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    folder = tmp_path / "described"
    folder.mkdir()
    (folder / "machine.txt").write_text(DESCRIBED)
    return folder


# --- the bundle ------------------------------------------------------------------------------------------------------


def test_a_machine_is_read_and_its_removed_packages_do_not_count(described: Path) -> None:
    machine = bundle.Machine.read(described)
    assert (machine.python, machine.glibc, machine.arch) == ("3.12", "2.39", 90)
    assert machine.debs == {"bash": ("5.2.21-2ubuntu4", "amd64")}
    assert bundle.lacking_debs(machine, ["bash", "sudo"]) == ["sudo"]
    machine.check_lock()
    assert "manylinux_2_39_x86_64" in machine.platforms()
    assert "manylinux_2_40_x86_64" not in machine.platforms()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("python 3.12", "python 3.13"), "the machine's Python is 3.13 on x86_64"),
        (("gpu 9.0, NVIDIA H200, 580.159.04\ngpu 9.0", "gpu 9.0, NVIDIA H200, 580\ngpu 8.0"), "2 kinds of GPU"),
    ],
)
def test_a_machine_that_no_bundle_is_for(described: Path, change: tuple[str, str], message: str) -> None:
    (described / "machine.txt").write_text(DESCRIBED.replace(*change))
    with pytest.raises(bundle.BundleError, match=message):
        bundle.Machine.read(described).check_lock()


def test_an_undescribed_machine_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(bundle.BundleError, match=r"describe\.sh"):
        bundle.Machine.read(tmp_path)


# --- the bundle on the machine ---------------------------------------------------------------------------------------

#: a Python that says its version and writes down what else it is asked
STAND_IN = """#!/bin/sh
case "$*" in *version_info*) echo 3.12 ;; *) echo "$@" >>"$TOLD" ;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """setup.sh in a checkout of its own, with two parts of a bundle."""
    top = tmp_path / "checkout"
    (top / "tools" / "gpu").mkdir(parents=True)
    shutil.copy(TOP / "tools" / "gpu" / "setup.sh", top / "tools" / "gpu")
    for path in (top / ".venv" / "bin" / "ansible-playbook", tmp_path / "python3"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    tree = tmp_path / "x-1-py3-none-any"
    tree.mkdir()
    files = {1: "controller/c.whl", 2: "wheels/w-1-py3-none-any.whl", 3: "trees/x-1-py3-none-any.tar.xz"}
    sums = ""
    for number, name in files.items():
        path = tmp_path / f"part-{min(number, 2)}" / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
        if name.startswith("trees"):
            subprocess.run(["tar", "-C", str(tmp_path), "-cJf", str(path), tree.name], check=True)
        sums += f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n"
    for part in ("part-1", "part-2"):
        (tmp_path / part / "SHA256SUMS").write_text(sums)
        (tmp_path / part / "python").write_text("3.12\n")
    return top


def set_up(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    python = str(checkout.parent / "python3")
    # with all that it started
    argv = ["timeout", "20", "bash", str(checkout / "tools/gpu/setup.sh"), *words, "--python", python]
    return subprocess.run(argv, cwd=checkout.parent, capture_output=True, text=True, check=False)


def test_a_bundle_for_another_python_is_one_line_and_leaves_nothing(checkout: Path) -> None:
    (checkout.parent / "part-1" / "python").write_text("3.13\n")
    done = set_up(checkout, "part-1")
    assert done.returncode == 2
    assert done.stderr.startswith("setup: the bundle is for Python 3.13 and ")
    assert done.stderr.count("\n") == 1
    assert not (checkout / ".lab").exists()


def test_each_part_is_used_as_soon_as_it_is_there(checkout: Path, tmp_path: Path) -> None:
    done = set_up(checkout, "part-1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "setup: 2 files are in parts that are not here yet")
    told = tmp_path / "told"
    model = f"{checkout}/tools/gpu/model.py"
    wide = [f"{model} wide --wide", f"{model} wide3 --wide --three"]
    wide.append(f"{model} broad --wide --three --broad")
    assert told.read_text().splitlines() == [f"{model} model", f"{model} sure --sure", *wide]
    done = set_up(checkout, "part-2", "--thin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("setup: ready")
    asked = told.read_text().splitlines()[5:]
    assert asked[0].endswith("unpacked/x-1-py3-none-any packed")
    assert asked[1:] == [f"{checkout}/tools/gpu/wheels.py thin thin.txt --thin"]
    # what the suites do without is made when it is asked for
    assert set_up(checkout).returncode == 0
    assert f"{checkout}/tools/gpu/wheels.py packed lock.txt" in told.read_text().splitlines()


@pytest.mark.parametrize("there", [True, False])
def test_an_image_waits_for_no_debian_packages_that_fail_or_are_not_there(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    script, dpkg = checkout / "tools/gpu/setup.sh", checkout.parent / "bin" / "dpkg"
    script.write_text(script.read_text().replace("/usr/sbin/policy-rc.d", str(checkout.parent / "policy")))
    dpkg.parent.mkdir()
    dpkg.write_text("#!/bin/sh\nexit 1\n")
    dpkg.chmod(0o755)
    monkeypatch.setenv("PATH", f"{dpkg.parent}:{os.environ['PATH']}")
    for name in ("debs/x.deb", "sglang/s.whl"):
        path = checkout.parent / "part-1" / name
        path.parent.mkdir()
        path.write_text(name)
        for part in ("part-1", "part-2"):
            with (checkout.parent / part / "SHA256SUMS").open("a") as sums:
                sums.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
    if not there:
        (checkout.parent / "part-1/debs/x.deb").unlink()
    done = set_up(checkout, "part-1", "part-2")
    assert done.returncode == (1 if there else 0), done.stderr
    assert ("setup: debs failed" in done.stderr) is there
    assert not (checkout / ".lab/gpu/.image.done").exists()
    # what it left holds no lock
    again = set_up(checkout)
    assert again.returncode == (1 if there else 0), again.stderr


def test_a_part_that_was_torn_on_the_way_is_not_used(checkout: Path) -> None:
    (checkout.parent / "part-2" / "wheels" / "w-1-py3-none-any.whl").write_text("torn")
    done = set_up(checkout, "part-1", "part-2")
    assert done.returncode == 1
    assert "wheels/w-1-py3-none-any.whl: FAILED" in done.stdout + done.stderr
    assert not (checkout / ".lab" / "gpu" / ".wheels.done").exists()


# --- the bundle ------------------------------------------------------------------------------------------------------


def test_parts_hold_what_they_may(tmp_path: Path) -> None:
    sizes = {tmp_path / name: size for name, size in (("a", 40), ("b", 30), ("c", 15), ("d", 10), ("e", 5))}
    parts = bundle.share_out(sizes, 56)
    assert sorted(path.name for part in parts for path in part) == ["a", "b", "c", "d", "e"]
    assert len(parts) == 2
    assert all(sum(sizes[path] for path in part) <= 56 for part in parts)
    with pytest.raises(bundle.BundleError, match="a alone has"):
        bundle.share_out({tmp_path / "a": 99 << 20}, 56 << 20)


def test_a_bundle_has_the_pinned_wheels_alone(tmp_path: Path) -> None:
    for name in (
        "vllm-0.9.0-py3-none-any.whl",
        "vllm-0.26.0+cu130-cp312-cp312-linux_x86_64.whl",
        "a_b-1.0-py3.whl",
    ):
        (tmp_path / name).touch()
    found = bundle.pinned(tmp_path, ["vllm==0.26.0+cu130", "A.b==1.0", "gone==1"])
    assert [path.name.split("-")[:2] for path in found] == [["a_b", "1.0"], ["vllm", "0.26.0+cu130"]]


def test_a_wheel_becomes_a_small_archive_once(tmp_path: Path) -> None:
    wheel = tmp_path / "ray-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("ray/jars/all.jar", "x")
        archive.writestr("ray/__init__.py", "y")
    packed = bundle.pack_tree(wheel, 90, tmp_path)
    listed = subprocess.run(["tar", "-tJf", packed], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in listed if not name.endswith("/")] == ["ray-1.0-py3-none-any/ray/__init__.py"]
    assert [path.name for path in tmp_path.iterdir() if path != wheel] == [packed.name]
    before = packed.stat().st_mtime_ns
    assert bundle.pack_tree(wheel, 90, tmp_path).stat().st_mtime_ns == before


def test_the_lock_pins_what_every_engine_needs() -> None:
    names = {pin.split("==")[0] for pin in bundle.pins(bundle.LOCK)}
    assert {"vllm", "ray", "uv"} <= names
    known = {pin.split("==")[0].lower() for pin in bundle.pins(TOP / "requirements" / "dev.txt")}
    assert set(bundle.CONTROLLER) <= known


# --- GPU code that is not needed -------------------------------------------------------------------------------------


def entry(kind: int, arch: int, code: bytes) -> bytes:
    return struct.pack("<HHIQ", kind, 1, 64, len(code)) + bytes(12) + struct.pack("<I", arch) + bytes(32) + code


def library(*containers: list[bytes]) -> bytes:
    """An ELF file with one section of GPU code."""
    body = b""
    for entries in containers:
        inner = b"".join(entries)
        body += struct.pack("<IHHQ", trim.MAGIC, 1, 16, len(inner)) + inner
        body += bytes(-len(body) % 8)
    strings = b"\0.nv_fatbin\0.shstrtab\0"
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(body) + len(strings))
    head += bytes(10) + struct.pack("<HHH", 64, 3, 2)
    rows = bytes(64)
    rows += struct.pack("<IIQQQQ", 1, 1, 0, 0, 64, len(body)) + bytes(24)
    rows += struct.pack("<IIQQQQ", 12, 3, 0, 0, 64 + len(body), len(strings)) + bytes(24)
    return head + body + strings + rows


def test_code_for_other_gpus_becomes_zeros_in_place(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    first = [entry(trim.MACHINE, 80, b"A" * 64), entry(trim.MACHINE, 90, b"B" * 64), entry(trim.PTX, 90, b"P" * 64)]
    second = [entry(trim.MACHINE, 80, b"C" * 64), entry(trim.PTX, 80, b"Q" * 64)]
    data = library(first, second)
    path.write_bytes(data)
    assert trim.keep_architecture(str(path), 90) == 3 * 64
    left = path.read_bytes()
    assert len(left) == len(data)
    assert b"B" * 64 in left
    assert b"Q" * 64 in left, "PTX is what a GPU without machine code runs"
    assert not any(letter * 64 in left for letter in (b"A", b"C", b"P"))


def test_no_library_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"no library" * 20)
    assert trim.keep_architecture(str(path), 90) == 0
    assert path.read_bytes() == b"no library" * 20


def test_unwanted_folders_and_files_go(tmp_path: Path) -> None:
    for name in ("ray/jars/a.jar", "ray/core/src/raylet", "ray/x.map", "ray/rllib/deep/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    trim.remove_unwanted(str(tmp_path), "ray")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "ray/core/src/raylet"
    ]


# --- wheels ----------------------------------------------------------------------------------------------------------


def test_the_closure_takes_from_the_bundle_first() -> None:
    here = {"vllm": ("0.26", ["torch", "lost"]), "ray": ("2.60", []), "uv": ("1", []), "extra": ("1", [])}
    there = {"torch": ("2.11", ["numpy"]), "numpy": ("2", []), "ray": ("2.50", []), "jax": ("1", [])}
    here["uv"] = ("1", ["uvicorn[standard]"])
    there |= {"uvicorn": ("1", ['uvloop; extra == "standard"', 'flask; extra == "wsgi"']), "uvloop": ("1", [])}
    assert wheels.closure(here, there) == (
        ["extra", "ray", "uv", "vllm"],
        ["numpy", "torch", "uvicorn", "uvloop"],
        ["lost"],
    )


def test_requirements_of_extras_and_other_systems_do_not_count() -> None:
    lines = ["torch==2.11", 'colorama; sys_platform == "win32"', 'pytest; extra == "dev"', "Not A Requirement!"]
    assert wheels.needs(lines) == [("torch", "")]
    assert wheels.needs(["uvicorn[standard]"]) == [("uvicorn", ""), ("uvicorn", "standard")]


def test_an_unpacked_wheel_becomes_one_again(tmp_path: Path) -> None:
    tree = tmp_path / "demo-1.0-py3-none-any"
    (tree / "demo").mkdir(parents=True)
    (tree / "demo/__init__.py").write_text("x = 1\n")
    (tree / "demo-1.0.dist-info").mkdir()
    (tree / "demo-1.0.dist-info/METADATA").write_text("Name: demo\nVersion: 1.0\nRequires-Dist: torch\n\n")
    (tree / "demo-1.0.dist-info/RECORD").write_text("demo/gone.py,sha256=x,1\n")
    made = Path(wheels.pack_tree(str(tree), str(tmp_path)))
    assert made.name == "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made) as archive:
        record = archive.read("demo-1.0.dist-info/RECORD").decode().splitlines()
        assert archive.testzip() is None
    assert [line.split(",")[0] for line in record] == [
        "demo/__init__.py", "demo-1.0.dist-info/METADATA", "demo-1.0.dist-info/RECORD"
    ]  # fmt: skip
    assert wheels.carried(str(tmp_path)) == {"demo": ("1.0", ["torch"])}


def test_an_installed_package_becomes_a_wheel(tmp_path: Path) -> None:
    name = wheels.pack_installed(str(tmp_path), "packaging")
    assert name.startswith("packaging-")
    assert name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(tmp_path / name) as archive:
        names = archive.namelist()
    assert "packaging/__init__.py" in names
    assert not any("__pycache__" in one or one.startswith("..") for one in names)


def test_the_file_name_follows_the_tags() -> None:
    text = "Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_17_x86_64\nTag: cp312-cp312-manylinux2014_x86_64\n"
    wanted = "torch-2.11.0+cu130-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert wheels.wheel_name("torch-2.11.0+cu130.dist-info", text) == wanted


def test_the_lock_says_what_was_left_out() -> None:
    text = wheels.lock_text({"vllm": "0.26.0", "ray": "2.60.0"}, ["flashinfer-python"])
    assert text.splitlines()[1:] == ["# required and left out: flashinfer-python", "ray==2.60.0", "vllm==0.26.0"]


# --- figures ---------------------------------------------------------------------------------------------------------


def test_only_what_came_within_the_time_counts() -> None:
    start = 100.0
    kept = [(100.5, [100.9, 101.5, 102.0], 3), (102.0, [102.02, 102.5, 103.0, 105.5], 4), (104.9, [], 0)]
    found = load.figures(kept, start, 4.0)
    assert found["tokens_per_second"] == 1.25, "five tokens in four seconds"
    assert found["ttft_p50_ms"] == 20.0
    assert found["requests"] == 1
    # the same tokens in half as many events are as many tokens
    merged = [(102.0, [102.5, 103.0], 4)]
    assert load.figures(merged, start, 4.0)["tokens_per_second"] == 1.0
    assert load.figures(merged, start, 4.0)["tpot_ms"] == pytest.approx(166.667)


def test_of_whole_answers_every_token_counts_from_the_first_question_on() -> None:
    found = load.whole([(100.0, [100.5, 101.0, 102.0], 3), (100.2, [100.5, 104.0], 5), (100.1, [], 4)])
    assert found["tokens_per_second"] == 2.0, "eight tokens in four seconds"
    assert (found["ttft_p50_ms"], found["requests"]) == (400.0, 2)
    assert load.whole([(100.0, [], 4)])["tokens_per_second"] == 0.0


def test_a_stream_asks_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(aim: Any, _dice: Any) -> tuple[float, list[float]]:
        asked.append(aim.tokens)
        return 1.0, [2.0]

    monkeypatch.setattr(load, "ask", ask)
    results: queue.Queue[Any] = queue.Queue()
    # its seconds are over before it begins
    load.work(load.Aim("", "", "", "m", 4, 512, requests=2), 3, 0.0, -1e9, 1, 3, results)
    kept, failed = results.get()
    assert asked == [512] * 6
    assert (kept, failed) == ([(1.0, [2.0], 512)] * 6, [])


def test_pairs_are_compared_round_by_round() -> None:
    def row(way: str, number: int, tokens: float, first: float) -> dict[str, object]:
        return {
            "streams": 8, "round": number, "way": way, "tokens_per_second": tokens, "ttft_p50_ms": first,
            "ttft_p99_ms": 2 * first, "failed": 0,
        }  # fmt: skip

    rows = [row("front", 0, 99, 12), row("engine", 0, 100, 10), row("front", 1, 48, 11), row("engine", 1, 50, 10)]
    [found] = price.summary([*rows, row("front", 2, 1, 1)], "front", "engine")
    assert found["pairs"] == 2
    assert found["ratio"] == pytest.approx(0.975)
    assert found["ratios"] == [0.96, 0.99]
    assert (found["ttft_added"], found["ttft_spread"]) == (1.5, [1.0, 2.0])
    assert (found["p99_added"], found["p99_spread"]) == (3.0, [2.0, 4.0])
    # one that answered nothing is no figure, but its failures count
    dead = [row("front", 3, 50, 10), row("engine", 3, 0, -1) | {"failed": 7}]
    [again] = price.summary([*rows, *dead], "front", "engine")
    assert again == found | {"failed": 7}
    assert price.summary(dead, "front", "engine") == []


@pytest.mark.parametrize(("count", "held"), [(1, [0, 0]), (5, [0, 4]), (6, [0, 5]), (9, [1, 7]), (20, [5, 14])])
def test_an_interval_holds_the_median(count: int, held: list[int]) -> None:
    assert price.spread(random.Random(1).sample(range(count), count)) == held


EVENTS = (b'data: {"choices": [1]}\n\n', b'data: {"choices": [2]}\n\n')


@pytest.mark.parametrize(
    ("events", "tokens"),
    [
        ((*EVENTS, b"data: [DONE]\n\n"), 2),
        (EVENTS, None),
        ((*EVENTS, b'data: {"error": {"message": "EngineDeadError"}}\n\n', b"data: [DONE]\n\n"), None),
        ((), None),
    ],
    ids=["whole", "torn", "error", "empty"],
)
def test_an_answer_that_broke_off_has_failed(events: tuple[bytes, ...], tokens: int | None) -> None:
    class Engine(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"".join(events))

        def log_message(self, *_words: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        aim = load.Aim(f"http://127.0.0.1:{server.server_port}", "", "key", "model", 4, 2)
        try:
            if tokens is None:
                with pytest.raises(OSError, match="the answer broke off"):
                    load.ask(aim, random.Random(1))
            else:
                _begun, came = load.ask(aim, random.Random(1))
                assert len(came) == tokens
        finally:
            thread.join()


# --- stages ----------------------------------------------------------------------------------------------------------


def opened(tmp_path: Path, *words: str) -> make_gpu.Run:
    place = clusters.FOUR["fault1"].write("fault1", 1, tmp_path / "inventories")
    return make_gpu.Run(make_gpu.parse([*words, "--inventory", str(place), "--results", str(tmp_path / "results")]))


@pytest.mark.parametrize(
    ("named", "asked"), [("one", "one"), (["one", "two"], "one"), (None, "tiny-qwen3"), ([], "tiny-qwen3")]
)
def test_requests_ask_for_the_first_of_the_declared_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Any, asked: str
) -> None:
    run = opened(tmp_path)
    monkeypatch.setattr(make_gpu.Run, "declared", lambda _self: {"vllm_serve_served_model_name": named})
    monkeypatch.setattr(make_gpu.Site, "open", lambda *_words: make_gpu.Site(SimpleNamespace(), []))  # type: ignore[arg-type]
    assert run.site.model == asked


def test_a_slow_step_has_a_worker_beside_the_declared_arguments(tmp_path: Path) -> None:
    run = opened(tmp_path, "--step", "7")
    told: dict[str, Any] = {}

    def must(_playbook: str, _name: str, **variables: Any) -> None:
        told.update(variables)
        raise make_gpu.GpuError("the play is not run here")

    run._site = SimpleNamespace(hosts=["a"], on=lambda *_words: "")  # type: ignore[assignment]  # a stand-in for the lab
    run.must = must  # type: ignore[method-assign,assignment]
    with pytest.raises(make_gpu.GpuError):
        make_gpu.slow(run)
    declared = run.declared()["vllm_serve_args"]
    assert declared["enforce-eager"] is True
    assert told["vllm_serve_args"] == {**declared, "worker-cls": "stepped_worker.SteppedWorker"}
    assert told["ray_node_env"] == told["vllm_serve_env"] == {"PYTHONPATH": "/opt/lab"}
    assert told["vllm_serve_watchdog_step_patience"] == 21


def test_a_fault_that_could_not_be_measured_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def complete(_site: Any, name: str, _number: int, **_more: Any) -> None:
        asked.append(name)
        if name == "link" and asked.count("link") == 1:
            raise LabError("no such cable")

    monkeypatch.setattr(make_gpu, "complete", complete)
    monkeypatch.setattr(make_gpu.Run, "site", None)
    words = ["faults", "--faults", "link,front", "--rounds", "2", "--results", str(tmp_path)]
    assert make_gpu.main(words) == 1
    assert asked == ["link", "front", "front"]
    assert make_gpu.main(words) == 0
    assert make_gpu.main(words) == 0
    assert asked[3:] == ["link", "front", "link", "front"]


def test_what_an_earlier_call_left_is_no_outcome(tmp_path: Path) -> None:
    run = opened(tmp_path)
    for name in ("verified/verify/20260101.json", "doctor-document.json", "report.html"):
        (run.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run.folder / name).write_text('{"lines": [1], "findings": [{"id": "old"}]}')
    failed = SimpleNamespace(rc=2, seconds=1.0, failures=["a: unreachable"])
    run.play = lambda *_words, **_variables: failed  # type: ignore[method-assign,assignment]
    assert make_gpu.verify(run)["lines"] == []
    assert make_gpu.doctor(run)["findings"] == []
    assert make_gpu.report(run)["bytes"] == 0


def test_a_finding_of_the_doctor_is_named_by_its_rule(tmp_path: Path) -> None:
    run = opened(tmp_path)
    line = Log("a", "kernel.log", "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.")
    found, _notes = diagnose(load_rules(CHECKS), {}, None, [line])

    def play(_playbook: str, _name: str, doctor_json: str) -> SimpleNamespace:
        Path(doctor_json).write_text(json.dumps({"findings": [one.public() for one in found]}), encoding="utf-8")
        return SimpleNamespace(rc=2, seconds=1.0, failures=[])

    run.play = play  # type: ignore[method-assign,assignment]
    assert make_gpu.doctor(run)["findings"] == ["gpu-error"]


def test_the_document_has_every_part_and_unmeasured_ones_say_so(tmp_path: Path) -> None:
    text = (TOP / "docs" / "developers.md").read_text(encoding="utf-8")
    parts = table.parts(tmp_path, make_gpu.STAGES)
    assert all(lines == ["Not measured yet."] for lines in parts.values())
    for name in parts:
        assert marked.begin(name) in text
        assert marked.end(name) in text


def test_tables_of_results(tmp_path: Path) -> None:
    deploy = {
        "hosts": 2, "hosts_seconds": 5.0, "site_seconds": 200.0, "stages": {"engine": 90.0, "firewall": 0.2},
        "versions": {"vllm": "0.26.0"}, "date": "2026-11-22",
    }  # fmt: skip
    lost = {"noticed": 7.0, "again": 60.0, "clients": [9.0]}
    busy = {"streams": 64, "minutes": 10.0, "requests": 40000, "tokens_per_second": 9000.4, "failed": 0,
            "restarts": {"wedged": 0}, "restarted": False, "states": ["serving"]}  # fmt: skip
    slow = {"step": 60.0, "answer": "", "answered": 61.5, "restarts": False, "noticed": 63.0, "again": 120.0}
    pairs = [
        {
            "streams": 1,
            "round": 0,
            "way": way,
            "tokens_per_second": speed,
            "ttft_p50_ms": first,
            "ttft_p99_ms": first,
            "failed": 0,
        }
        for way, speed, first in (("ours", 99.0, 21.0), ("by hand", 100.0, 20.0))
    ]
    for name, found in {
        "deploy": deploy, "again": {"seconds": 6.0, "changed": {"a": 0, "b": 0}},
        "fault1/faults": {"away": 20.0},
        "fault1/faults/worker": [lost], "fault2/faults/worker": [lost | {"again": 62.0}],
        "load/deploy": deploy | {"start": [("API", 9.0)]}, "load/busy": busy, "fault1/slow": slow,
        "load/boot": {"answer": 90.0, "ssh": 8.0, "start": [("API", 3.0)]}, "gpu/byhand-rows": {"rows": pairs},
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    parts = table.parts(tmp_path, make_gpu.STAGES, clusters.TITLES)
    assert "| `site.yml` on bare hosts | 200.0 | engine 90 |" in parts["gpu runs"]
    assert "| `site.yml` again | 6.0 | changed 0 |" in parts["gpu runs"]
    assert parts["gpu faults"][2].startswith(
        "| power loss of a worker, back after 20 s | 2 | 7, 7 | 60, 62 after its ssh | 9 |"
    )
    assert parts["gpu load"][2] == "| 64 | 10 | 40000 | 9000 | 0 | 0 | no | serving |"
    assert "| a step of 60 s | answered after 61.5 s, whole; no restart |" in parts["gpu slow"]
    assert parts["gpu start"][2:] == ["| API | – | 9.0 | 3.0 |", "| all | – | 9.0 | 3.0 |"]
    assert parts["gpu page"] == parts["gpu ring"] == ["Not measured yet."]
    assert parts["gpu by hand"][2] == (
        "| `ray`, PP=2 | 1 | 1 | 99 | 100 | **0.990** (0.990, 0.990) | +1.0 (+1.0, +1.0; 21.0 and 20.0) | 0 |"
    )


def test_browsers_that_are_one_of_several_ways_stand_in_the_table_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    rows = [
        {"streams": 8, "round": 0, "way": way, "tokens_per_second": speed, "ttft_p50_ms": 20.0, "ttft_p99_ms": 20.0,
         "failed": 0} for way, speed in (("by hand", 50.0), ("ours", 100.0), ("polled", 99.0))
    ]  # fmt: skip
    (tmp_path / "plain" / "byhand-rows.json").write_text(json.dumps({"rows": rows}))
    assert table.paged(tmp_path, [("plain", "one host")])[2:] == [
        "| one host | 8 | 1 | 99 | 100 | **0.990** (0.990, 0.990) | +0.0 (+0.0, +0.0; 20.0 and 20.0) | 0 |",
    ]


JOURNAL = """\
Nov 22 06:43:39.000000 gpu-01 systemd[1]: Started something else.
Nov 22 06:43:40.441990 gpu-01 systemd[1]: Starting sparkthor-vllm.service - vLLM (serving)...
Nov 22 06:43:45.698436 gpu-01 systemd[1]: Started sparkthor-vllm.service - vLLM (serving).
Nov 22 06:44:01.310720 gpu-01 vllm[3983]: (APIServer pid=3983) INFO [api_utils.py:345] █▄  version 0.26.0
-- Boot --
Nov 22 06:44:15.977765 gpu-01 vllm[4354]: (EngineCore pid=4354) INFO Initializing a V1 LLM engine (v0.26.0)
Nov 22 06:44:15.990000 gpu-01 vllm[4354]: (EngineCore pid=4354) INFO version 0.26.0 again
Nov 22 06:45:15.444606 gpu-01 vllm[3983]: (APIServer pid=3983) INFO:     Application startup complete.
"""


def test_a_start_is_taken_apart_and_missing_steps_take_nothing() -> None:
    assert start.steps(JOURNAL) == [
        ("page cache dropped on all hosts", 5.3),
        ("API server: imports", 15.6),
        ("engine core: imports", 14.7),
        ("API", 59.5),
    ]
    assert start.moment("1700000000.250000 gpu-01 systemd[1]: x") == 1700000000.25
    assert start.steps("nothing") == []


def test_a_power_on_begins_with_the_boot_of_the_hosts() -> None:
    journal = (
        "1700000010.000000 gpu-01 systemd[1]: Starting sparkthor-vllm.service - vLLM (serving)...\n"
        "1700000012.500000 gpu-01 ray-gate[9]: 2 of 2 nodes, 2 of 2 GPUs on 10.78.0.11\n"
    )
    assert start.steps(journal, 1700000008.0) == [(start.BOOT, 2.0), ("gate: Ray is whole", 2.5)]


UNIT = """\
ExecStartPre=/usr/bin/python3 -IB host ray-gate --wait 86400
ExecStart=python3 host launch --file=e -- /bin/sh -c "(python -B host nodes-prepare r:1 &); exec vllm serve --config c"
Restart=always
"""


class Hosts:
    """A site whose power is a list, and whose head is some files of this machine."""

    head, hosts = "a", ("a", "b")

    def __init__(self, folder: Path) -> None:
        self.folder, self.told = folder, list[str]()
        self.works = True
        (folder / "sparkthor-vllm.service").write_text(UNIT)
        self.lab = SimpleNamespace(off=lambda *_names: self.told.append(self.laid()), boot=lambda: 0, wait=lambda: 0)

    @property
    def endpoint(self) -> Any:
        return SimpleNamespace(complete=lambda *_words, **_more: "" if self.works else "no answer")

    def laid(self) -> str:
        """The lines that start something, and the environment."""
        unit = (self.folder / "sparkthor-vllm.service").read_text().splitlines()
        assert unit[-1] == "Restart=always"
        return "\n".join([*unit[:-1], *(self.folder / "engine.env").read_text().splitlines()])

    def on(self, _host: str, command: str, *words: str, check: bool = True) -> str:
        if command.startswith("journalctl"):
            return f"{time.time() + 2:.6f} a systemd[1]: Starting sparkthor-vllm.service\n"
        for place in ("/etc/systemd/system", "/etc/sparkthor", "/var/tmp"):
            command = command.replace(f"{place}/", f"{self.folder}/")
        # the path of an early start's program stays what the unit says
        command = command.replace(">/usr/local/lib/sparkthor/early.py", f">{self.folder}/early.py")
        return subprocess.run(["bash", "-c", command, "x", *words], check=check, capture_output=True, text=True).stdout


def test_power_on_in_variants_takes_turns_and_is_kept(tmp_path: Path) -> None:
    site: Any = Hosts(tmp_path)
    runs: list[dict[str, Any]] = []
    kept: list[int] = []
    for _call in range(2):
        boots.measure(site, list(boots.VARIANTS), 2, runs, lambda found: kept.append(len(found)), tmp_path)
    gate, start_up = UNIT.splitlines()[:2]
    launch = "python3 host launch --file=e --"
    before = (
        f"{gate}\nExecStartPre=-{launch} python -B host nodes-prepare r:1\nExecStart={launch} vllm serve --config c"
    )
    fork = "VLLM_WORKER_MULTIPROC_METHOD=fork"
    early = f"ExecStart={launch} /opt/sparkthor/venv/bin/python /usr/local/lib/sparkthor/early.py serve --config c"
    order = [before, f"{gate}\n{start_up}", f"{gate}\n{start_up}\n{fork}", f"{early}\n{fork}"]
    assert site.told == [*order, *reversed(order)]
    assert kept == [1, 2, 3, 4, 5, 6, 7, 8]
    compile((tmp_path / "early.py").read_text(), "early.py", "exec")
    assert (tmp_path / "boot-fork-1.journal").read_text().endswith("Starting sparkthor-vllm.service\n")
    boots.lay(site, boots.VARIANTS["beside"])
    assert (tmp_path / "sparkthor-vllm.service").read_text() == UNIT


def test_a_start_that_never_serves_leaves_its_journal_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site: Any = Hosts(tmp_path)
    site.works = False
    monkeypatch.setattr(boots, "PATIENCE", 0.0)
    runs: list[dict[str, Any]] = []
    boots.measure(site, ["before", "beside"], 1, runs, lambda _runs: None, tmp_path)
    assert (runs, len(site.told)) == ([], 2)
    assert (tmp_path / "boot-before-0.failed").read_text().startswith("waited 0 s for a completion after power-on\n")


def test_a_unit_of_another_form_is_not_changed(tmp_path: Path) -> None:
    site: Any = Hosts(tmp_path)
    (tmp_path / "sparkthor-vllm.service").write_text("ExecStart=vllm serve\n")
    with pytest.raises(subprocess.CalledProcessError):
        boots.lay(site, boots.VARIANTS["before"])
    assert (tmp_path / "sparkthor-vllm.service").read_text() == "ExecStart=vllm serve\n"


def test_variants_of_power_on_make_a_table_of_medians(tmp_path: Path) -> None:
    runs = [
        {"variant": name, "round": number, "answer": answer, "start": [[start.BOOT, 1.0], ["API", api]]}
        for name, number, answer, api in (("before", 0, 80.5, 2.0), ("fork", 0, 60, 1.0), ("before", 1, 78, 3.0))
    ]
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "boots-runs.json").write_text(json.dumps({"runs": runs}))
    assert table.booted(tmp_path, clusters.TITLES) == [
        f"| step | {boots.VARIANTS['before'].title}, s | {boots.VARIANTS['fork'].title}, s |",
        "|---|---|---|",
        "| boot of the hosts | 1.0 | 1.0 |",
        "| API | 2.5 | 1.0 |",
        "| first answer | 80.5, 78 | 60 |",
    ]


# --- clusters side by side -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cluster"),
    {
        **{**clusters.FOUR, **clusters.TWO, **clusters.WIDE, **clusters.CHAOS, **clusters.DOORS, **clusters.SHARED},
        **clusters.SGLANG,
    }.items(),
)
def test_a_cluster_has_a_host_for_each_gpu_and_fits_its_split(tmp_path: Path, name: str, cluster: Any) -> None:
    assert len(cluster.gpus) == cluster.pipeline * cluster.tensor * (len(cluster.groups) or 1)
    place = cluster.write(name, 7, tmp_path)
    found = inventory.interpret(inventory.read([str(place)]))
    assert found.gpu == cluster.gpus
    assert [wish.name for wish in found.wishes] == [f"{name}-{rank:02}" for rank in range(1, len(cluster.gpus) + 1)]
    assert found.subnet == "10.78.7.0/24"


@pytest.mark.parametrize(("known", "waves"), suite.SUITES.values(), ids=suite.SUITES)
def test_every_step_of_a_suite_is_one_that_make_gpu_knows(known: Any, waves: Any) -> None:
    steps = [step for wave in waves for chain in (*wave.chains, *wave.background) for step in chain]
    assert {step.cluster for step in steps} == set(known)
    for step in (step for step in steps if step.program == "tools.gpu"):
        options = make_gpu.parse([*step.stages.split(), *step.options.split()])
        assert options.stages == step.stages.split()
        assert set(options.faults) <= set(faults.FAULTS)


def test_each_serving_group_of_a_cluster_has_its_host_and_head(tmp_path: Path) -> None:
    place = clusters.DOORS["doors"].write("doors", 6, tmp_path)
    groups = yaml.safe_load((place / "hosts.yml").read_text())["cluster"]["children"]
    assert {name: list(group["hosts"]) for name, group in groups.items()} == {
        "ray_head": ["doors-01", "doors-02"], "ray_workers": [], "near": ["doors-01"], "far": ["doors-02"],
    }  # fmt: skip
    common, near, far = (
        yaml.safe_load((place / "group_vars" / f"{name}.yml").read_text()) for name in ("cluster", "near", "far")
    )
    assert common["serving_groups"] == ["near", "far"]
    # the first host is asked for what the second one serves
    assert common["vllm_serve_served_model_name"] == "random-qwen3" != near["vllm_serve_served_model_name"]
    assert far["vllm_serve_args"]["load-format"] == "dummy"


def test_the_chain_ends_at_the_engine_of_the_last_host(monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine:
        def __init__(self, name: str) -> None:
            self.name = name

        def leader(self) -> int:
            return {"doors-01": 11, "doors-02": 22}[self.name]

    point = SimpleNamespace(address="10.78.6.11", port=8000)
    lab = SimpleNamespace(machine=Machine)
    # no file of SGLang
    site: Any = SimpleNamespace(endpoint=point, lab=lab, head="doors-01", worker="doors-02", on=lambda *_words: "")
    found = byhand.ways(site)
    assert {way: found[way][1] for way in byhand.CHAIN} == {
        "chain": "http://10.78.6.11:8000", "socket": f"/proc/22/root{byhand.SOCKET}",
    }  # fmt: skip
    assert found["engine"] == ["--socket", f"/proc/11/root{byhand.SOCKET}"]


def test_the_measured_cluster_has_cores_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, root = tmp_path / "home", tmp_path / "cgroup"
    for number, name in enumerate(("tp4", "load")):
        (home / name).mkdir(parents=True)
        (home / name / "lab.json").write_text(json.dumps({"tag": f"t{number}"}))
        (root / f"sparklab-t{number}").mkdir(parents=True)
    asked: list[Any] = []
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cores.os, "sched_setaffinity", lambda _pid, chosen: asked.append(chosen))
    cores.own("tp4", 24, home, root)
    assert (root / "sparklab-t0" / "cpuset.cpus").read_text() == "0-23"
    assert (root / "sparklab-t1" / "cpuset.cpus").read_text() == "24-63"
    assert asked == [range(24)]
    (home / "load" / "lab.json").unlink()
    cores.own("tp4", 24, home, root)
    assert asked[1:] == [range(24, 64)], "the client's, since no other cluster is there"
    (home / "load" / "lab.json").write_text(json.dumps({"tag": "t1"}))
    cores.own("tp4", 0, home, root)
    assert {path.read_text() for path in root.glob("*/cpuset.cpus")} == {"0-63"}
    with pytest.raises(ValueError, match="this machine has 64"):
        cores.own("tp4", 64, home, root)


def test_a_step_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    cut = threading.Event()
    with (tmp_path / "log").open("w+") as log:
        assert suite.ended([sys.executable, "-c", "print('done')"], log, 600, cut) == 0
        assert suite.ended(["bash", "-c", f"sleep 1000.{os.getpid()} & wait"], log, 0.5, cut) != 0
        cut.set()
        assert suite.ended(["bash", "-c", f"sleep 1000.{os.getpid()} & wait"], log, 600, cut) != 0
        log.seek(0)
        assert log.read() == "done\nended after 0.5 s\ninterrupted\n"
    end = time.monotonic() + 60
    while any(f"sleep\0001000.{os.getpid()}" in line for line in command_lines()):
        assert time.monotonic() < end
        time.sleep(0.1)


def command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


GONE = "Error response from daemon: No such container: by-hand"
BUSY = "Error response from daemon: could not kill container: device or resource busy"


@pytest.mark.parametrize(
    ("docker", "said", "unit", "fails"),
    [(1, GONE, 5, ""), (0, "by-hand", 0, ""), (1, BUSY, 5, BUSY), (1, GONE, 1, "systemctl stop by-hand-vllm")],
)
def test_what_cannot_be_stopped_by_hand_is_said(tmp_path: Path, docker: int, said: str, unit: int, fails: str) -> None:
    """A container and units that are not there are no fault."""
    stand_ins = {"docker": f"echo {shlex.quote(said)} >&2; exit {docker}"}
    stand_ins["systemctl"] = f'echo "systemctl $*" | tee -a {tmp_path}/asked >&2; [ "$2" = by-hand-ray ] || exit {unit}'
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found: list[subprocess.CompletedProcess[str]] = []

    def everywhere(command: str) -> None:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        words = ["bash", "-c", command]
        found.append(subprocess.run(words, env=environment, capture_output=True, text=True, check=False))

    byhand.stop(SimpleNamespace(everywhere=everywhere))  # type: ignore[arg-type]  # a stand-in for the lab
    assert bool(found[0].returncode) == bool(fails), found[0].stderr
    assert fails in found[0].stderr
    # whatever became of the container, the units are stopped
    for name in ("by-hand-vllm", "by-hand-boxed", "by-hand-ray"):
        assert name in (tmp_path / "asked").read_text()


def test_vllm_by_hand_listens_beside_ours() -> None:
    served = {"model": "/m", "uds": "/run/s", "master-port": 29501, "nnodes": 2}
    assert byhand.config(served, head=True) == {
        "model": "/m", "nnodes": 2, "master-port": byhand.MASTER_PORT, "host": "127.0.0.1", "port": byhand.PORT,
    }  # fmt: skip
    assert "port" not in byhand.config({"model": "/m", "headless": True}, head=False)


def test_sglang_by_hand_is_the_units_container_with_ports_of_its_own() -> None:
    served = "host: 127.0.0.1\nport: 30000\ndist-init-addr: 10.78.0.11:29501\ntp-size: 2\n"
    shown = ["docker", "run", "--name", "sparkthor-vllm", "--cidfile", "/run/c", "image", "--config", byhand.SGLANG]
    for one, name, port, master in (
        (byhand.HAND, "by-hand", 8100, 29777),
        (byhand.BOXED, "by-hand-boxed", 8101, 29778),
    ):
        laid = f"host: 127.0.0.1\nport: {port}\ndist-init-addr: 10.78.0.11:{master}\ntp-size: 2\n"
        assert one.moved(served) == laid
        assert one.words(shown) == [
            *("docker", "run", "--name", name, "--cidfile", f"{one.folder}/cid", "image", "--config"),
            f"/var/lib/sparkthor/cache/{name}.yaml",
        ]


def test_a_second_sglang_by_hand_disturbs_nothing_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    laid: list[str] = []
    begun: list[list[str]] = []

    def on(_host: str, command: str, *_words: str) -> str:
        laid.append(command)
        if command.startswith("test "):
            return "yes\n"
        if command == f"cat {byhand.SGLANG}":
            return "port: 30000\n"
        return json.dumps(["docker", "--name", "x", "--cidfile", "y"]) if "systemd-run" in command else "/m\n"

    monkeypatch.setattr(byhand, "_until", lambda *_words, **_more: None)
    lab = SimpleNamespace(exec=lambda _host, words: begun.append(words))
    site: Any = SimpleNamespace(head="one", hosts=["one"], on=on, lab=lab)
    byhand.start(site)
    first = len(laid)
    byhand.start_boxed(site)
    assert [words[words.index("--name") + 1] for words in begun] == ["by-hand", "by-hand-boxed"]
    assert [word for words in begun for word in words if word.startswith("--unit=")] == [
        "--unit=by-hand-vllm", "--unit=by-hand-boxed",
    ]  # fmt: skip
    assert any("port: 8101" in command for command in laid[first:])
    assert not [command for command in laid[first:] if f"{byhand.FOLDER};" in command or "by-hand.yaml" in command]


def test_a_stage_for_a_cluster_of_its_own_is_only_laid_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid: list[str] = []

    def stage(name: str) -> Any:
        def note(_run: Any) -> dict[str, Any]:
            laid.append(name)
            return {}

        return note

    monkeypatch.setattr(make_gpu, "STAGES", {name: stage(name) for name in ("deploy", "chain")})
    assert make_gpu.main(["--results", str(tmp_path)]) == 0
    assert laid == ["deploy"]
    assert make_gpu.main(["chain", "--results", str(tmp_path)]) == 0
    assert laid == ["deploy", "chain"]


def test_no_engine_is_asked_the_same_twice_and_the_order_alternates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []

    def ask(
        _site: Any, whom: list[str], streams: int, _seconds: float, _tokens: int, seed: int = 0, prompt: int = 0,
        requests: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        assert (prompt, requests) == (128, 0)
        asked.append((whom[0], streams, seed))
        return {"tokens_per_second": 1.0}

    monkeypatch.setattr(byhand, "ask", ask)
    monkeypatch.setattr(byhand, "ways", lambda _site: {way: [way] for way in ("ours", "front", "engine", "by hand")})
    monkeypatch.setattr(byhand, "no_watchdog", lambda _site: contextlib.nullcontext())
    counted = iter((tokens, 3.0 * tokens / 4) for tokens in range(0, 1600, 100))
    monkeypatch.setattr(byhand, "given", lambda _site, _way: next(counted))
    rows: list[dict[str, Any]] = []
    told: list[str] = []
    byhand.pairs(None, (1, 8), 2, 1.0, 128, rows, lambda _rows: None, told.append, ("ours", "by hand"))  # type: ignore[arg-type]  # a stand-in for the lab
    warm, measured = asked[:2], asked[2:]
    assert warm == [("ours", 8, 0), ("by hand", 8, 0)]
    assert [way for way, _streams, _seed in measured] == [*["ours", "by hand"] * 2, *["by hand", "ours"] * 2]
    # two engines are asked the same, each of them once
    for way in ("ours", "by hand"):
        assert len({seed for one, _streams, seed in asked if one == way}) == len(measured) // 2 + 1
    assert [seed for _way, _streams, seed in measured[::2]] == [seed for _way, _streams, seed in measured[1::2]]
    # what is there already is not measured again
    byhand.pairs(None, (1, 8), 2, 1.0, 128, rows, lambda _rows: None, told.append, ("ours", "by hand"))  # type: ignore[arg-type]  # a stand-in for the lab
    assert len(rows) == len(measured) == 8
    assert {row["tokens_per_step"] for row in rows} == {4.0}


_COUNTED = """\
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 1200.0
vllm:generation_tokens_total{engine="1",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 900.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 400.0
"""


class _Answering:
    """Hosts of which only the lines that were asked for are kept."""

    head, worker, hosts = "first", "last", ("first", "last")

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def on(self, host: str, command: str, **_settings: Any) -> str:
        self.asked.append((host, command))
        return self.answer

    def everywhere(self, _command: str) -> None:
        pass


def test_what_an_engine_guessed_is_read_where_it_listens() -> None:
    site: Any = _Answering(_COUNTED)
    assert byhand.given(site, "by hand") == byhand.given(site, "ours") == byhand.given(site, "chain") == (1500.0, 900.0)
    assert [host for host, _command in site.asked] == ["first", "first", "last"]
    assert f":{byhand.PORT}/metrics" in site.asked[0][1]
    byhand.given(site, "boxed")
    assert f":{byhand.BOXED_PORT}/metrics" in site.asked.pop()[1]
    assert byhand.SOCKET in site.asked[1][1]
    # an engine that does not answer has no figure, and does not end the pairs
    assert byhand.given(_Answering(""), "ours") == (0.0, 0.0)  # type: ignore[arg-type]  # a stand-in for the lab


def test_tokens_of_a_step_are_its_own_and_those_guessed_right() -> None:
    assert byhand.per_step((1000.0, 500.0), (1400.0, 800.0)) == 4.0
    assert byhand.per_step((1000.0, 0.0), (1400.0, 0.0)) == 1.0
    assert byhand.per_step((0.0, 0.0), (0.0, 0.0)) == 0.0


def test_vllm_by_hand_starts_without_what_it_is_compared_by(monkeypatch: pytest.MonkeyPatch) -> None:
    site: Any = _Answering(json.dumps({"model": "/m", "speculative-config": {"method": "ngram"}, "uds": "/run/s"}))
    for name in ("_run", "_until"):
        monkeypatch.setattr(byhand, name, lambda *_words, **_more: None)
    byhand.start(site, without=["speculative-config"])
    laid = [command for _host, command in site.asked if "vllm.yaml" in command and command.startswith("echo")]
    assert laid
    assert all("/m" in command and "speculative" not in command for command in laid)
    site.asked.clear()
    byhand.start(site)
    assert any("ngram" in command for _host, command in site.asked)


def test_a_second_one_by_hand_has_the_limits_of_the_unit_and_nothing_else_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = sandbox(engine=True).splitlines()
    unit = "[Service]\nType=notify\nExecStart=/usr/bin/true\nLimitNOFILE=1048576\nRuntimeDirectory=x\n"
    told: list[list[str]] = []

    def on(_host: str, command: str) -> str:
        laid.append(command)
        return unit + "\n".join(limits) if "systemctl cat" in command else json.dumps({"model": "/m", "uds": "/run/s"})

    laid: list[str] = []
    lab = SimpleNamespace(exec=lambda _host, words: told.append(words))
    monkeypatch.setattr(byhand, "_until", lambda *_words, **_more: None)
    byhand.start_boxed(SimpleNamespace(head="one", on=on, lab=lab))  # type: ignore[arg-type]  # a stand-in for the lab
    given = {word.removeprefix("--property=") for word in told[0] if word.startswith("--property=")}
    assert {"LimitNOFILE=1048576", *limits} <= given
    assert not [one for one in given if one.startswith(("Type=", "ExecStart=", "RuntimeDirectory="))]
    assert [command for command in laid if f'"port": {byhand.BOXED_PORT}' in command]
    # it disturbs neither the files nor the control group of the other one
    assert "--unit=by-hand-boxed" in told[0]
    assert not [command for command in laid if f"{byhand.FOLDER}/" in command]


def test_ways_to_one_engine_never_ask_it_the_same_and_another_engine_is_asked_as_ours_is() -> None:
    assert byhand.seeds(byhand.WAYS) == {"ours": 0, "engine": 1, "by hand": 0}
    assert byhand.seeds(byhand.CHAIN) == {"chain": 0, "socket": 1}
    assert byhand.seeds(byhand.AGAINST) == {"ours": 0, "other": 0}
    every = byhand.seeds(["by hand", "ours", "polled", "engine", "boxed"])
    assert every == {"by hand": 0, "ours": 0, "polled": 1, "engine": 2, "boxed": 0}


def test_wheels_that_are_there_are_not_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(bundle, "run", lambda argv: asked.append(list(argv)))
    machine = bundle.Machine("3.12", "x86_64", "2.39", 90, {})
    (tmp_path / "there-1.0-py3-none-any.whl").touch()
    bundle.download(machine, ["there==1.0", "gone==2.0"], tmp_path)
    bundle.download(machine, ["there==1.0"], tmp_path)
    [words] = asked
    assert words[-1] == "gone==2.0"
    assert "there==1.0" not in words


def test_a_thin_wheel_has_metadata_and_leads_to_the_machines_own_packages(tmp_path: Path) -> None:
    name = wheels.pack_thin(str(tmp_path), "packaging", "/opt/torch/site-packages")
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert archive.read("zz_of_the_machine.pth") == b"/opt/torch/site-packages\n"
        others = {member.split("/")[0] for member in archive.namelist()} - {"zz_of_the_machine.pth"}
    assert [one.split("-")[0] for one in others] == ["packaging"]
    assert "packaging" in wheels.carried(str(tmp_path))


def test_gpus_that_are_named_may_be_others_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in ("nvidiactl", "nvidia0", "nvidia1"):
        (tmp_path / node).touch()
    monkeypatch.setattr(gpu.shutil, "which", lambda _name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(gpu, "run", lambda *_words, **_more: subprocess.CompletedProcess([], 0, "", ""))
    assert gpu.allot(2, [0, 1], named=(1, 0), dev=tmp_path, pci=tmp_path) == (1, 0)
    for named in ((0, 5), (0,)):
        with pytest.raises(LabError, match=r"2 hosts, and GPUs 0, 1 are there"):
            gpu.allot(2, [], named=named, dev=tmp_path, pci=tmp_path)


def test_browsers_ask_for_the_state_with_the_key_each_two_seconds() -> None:
    asked: list[tuple[str, str | None]] = []

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200 if self.headers["Authorization"] == "Bearer right" else 401)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_words: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Front)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port = server.server_address[1]
        with pollers.looking("127.0.0.1", port, "right", count=3, every=0.3) as looks:
            time.sleep(1)
        assert looks.answers >= 6
        assert (looks.failed, looks.error) == (0, "")
        assert set(asked) == {("/console/state", "Bearer right")}
        with pollers.looking("127.0.0.1", port, "wrong", count=1, every=0.3) as looks:
            time.sleep(0.5)
        assert not looks.answers
        assert looks.error == "401: b'{}'"
    finally:
        server.shutdown()


def test_a_pair_whose_browsers_got_no_answer_is_no_figure() -> None:
    site: Any = SimpleNamespace(endpoint=SimpleNamespace(address="127.0.0.1", port=1, key="k"))
    with pytest.raises(OSError, match="0 looks at the page were answered"), byhand.beside(site, "polled"):
        time.sleep(0.5)


def test_the_cables_of_the_ring_join_neighbours_alone() -> None:
    lines = ring.commands("t-")
    cables = [line for line in lines if "peer name left" in line]
    assert [(line.split()[4], line.split()[-1]) for line in cables] == [
        ("t-0", "t-1"), ("t-1", "t-2"), ("t-2", "t-3"), ("t-3", "t-0"),
    ]  # fmt: skip
    # the first host reaches the second and the last, and not the third
    assert sorted(line.split()[4] for line in lines if line.startswith("-n t-0 route")) == [
        "10.98.0.2/32", "10.98.0.4/32",
    ]  # fmt: skip


def test_a_case_of_the_ring_is_what_its_ranks_say(tmp_path: Path) -> None:
    case = ring.Case("as rendered", {}, True)
    fine = {"done": ["all-reduce 8 B"], "nccl": "2.28.9"}
    found = ring.judged(case, [fine] * 4, [""] * 4)
    assert (found["whole"], found["as_wanted"], found["done"]) == (True, True, ["all-reduce 8 B"])
    warned = "h:1 [0] NCCL WARN socketStartConnect: connect to 10.98.0.3<1> failed : Network is unreachable"
    bad = ring.judged(case, [fine, fine, None, {**fine, "done": [], "error": "E: x"}], [warned, "", "", ""])
    assert (bad["whole"], bad["as_wanted"], bad["hung"], bad["errors"]) == (False, False, [2], ["E: x"])
    assert ring.told('x\nRING {"done": []}\n') == {"done": []}
    assert ring.told("x") is None
    cases = [{**one, "sent_mib": [1.5, 0.0]} for one in (found, bad)]
    (tmp_path / "ring.json").write_text(json.dumps({"cases": cases}))
    assert table.ringed(tmp_path)[2:] == [
        "| as rendered | 1 collectives right | 1.5, 0 |",
        "| as rendered | nothing came through, then: Network is unreachable | 1.5, 0 |",
    ]


def test_clusters_make_a_table_of_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "mp3"
    (folder / "faults").mkdir(parents=True)
    rows = [
        {
            "streams": 1,
            "round": 0,
            "way": way,
            "tokens_per_second": speed,
            "ttft_p50_ms": 20.0,
            "ttft_p99_ms": 20.0,
            "failed": 0,
        }
        for way, speed in (("ours", 99.0), ("by hand", 100.0))
    ]
    verified = [
        {"check": "all-reduce", "where": "3 ranks", "value": 1.5, "verdict": "pass"},
        {"check": "transport", "where": "mp3-01", "value": "Socket", "verdict": "pass"},
        {"check": "latency", "where": "3 ranks", "value": 900, "verdict": "fail"},
    ]
    for stage, found in {
        "deploy": {"hosts": 3, "site_seconds": 264.8}, "again": {"changed": {"mp3-01": 0}},
        "verify": {"lines": verified}, "byhand-rows": {"rows": rows},
        "faults/worker": [{"noticed": 9.1, "again": 61.0}],
    }.items():  # fmt: skip
        (folder / f"{stage}.json").write_text(json.dumps(found))
    head, _line, row = table.clusters(tmp_path, [("mp3", "`mp`, PP=3"), ("tp4", "TP=4")])
    assert head.count("|") == row.count("|")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["`mp`, PP=3", "3", "265", "0", "1.5, Socket", "–", "latency", "0.990 at 1 (n=1)", "9.1, 61.0"]
    assert table.clusters(tmp_path, []) == ["Not measured yet."]
