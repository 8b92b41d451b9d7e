# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    EngineError,
    Pin,
    Target,
    canonical,
    check_lock,
    compare_parity,
    extract_uv,
    make_target,
    missing_pins,
    parity_table,
    parse_lock,
    parse_wheel,
    pip_download_argv,
    read_lock,
    requirement_lines,
    same_version,
    select_wheels,
    set_digest,
    unexpected_wheels,
    uv_install_argv,
    uv_wheel,
    wheel_lines,
    wheel_rank,
)

SHIPPED = Path(__file__).resolve().parents[5] / "requirements" / "engine"
SPARK = Target("3.12", "aarch64", "2.39")
LAB = Target("3.11", "x86_64", "2.36")


A, B = "a" * 64, "b" * 64


def test_a_lock_with_all_that_resolvers_write(tmp_path: Path) -> None:
    text = (
        "# made by a resolver\n"
        f"ray[default]==2.60.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n"
        "    # via -r engine.in\n"
        f"Typing_Extensions==4.16.0 --hash=sha256:{B}  # via vllm\n\n"
        f"torch==2.13.0+cpu --hash=sha256:{A}\nray==2.60.0\n"
    )
    pins = [
        Pin("ray", "2.60.0", (A, B)),
        Pin("typing-extensions", "4.16.0", (B,)),
        Pin("torch", "2.13.0+cpu", (A,)),
    ]
    assert parse_lock(text, "lock") == pins
    # what pip and uv are given means the same, and nothing else would install
    assert parse_lock(requirement_lines(pins), "again") == pins
    (tmp_path / "lock.txt").write_text(text)
    assert read_lock(str(tmp_path / "lock.txt"), "x") == pins


def test_a_lock_without_hashes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(f"ray==2.60.0 --hash=sha256:{A}\nuv==0.13.8\nvllm==0.32.0\n")
    with pytest.raises(EngineError, match=r"engine_requirements: .*lock\.txt has no SHA-256 for uv==0\.13\.8, vllm=="):
        read_lock(str(tmp_path / "lock.txt"), "engine_requirements")
    with pytest.raises(EngineError, match=r"engine_requirements: .*none\.txt: No such file"):
        read_lock(str(tmp_path / "none.txt"), "engine_requirements")
    with pytest.raises(EngineError, match="line 2: 'sha256:00' is not sha256: and 64"):
        parse_lock("\nuv==0.13.8 --hash=sha256:00\n", "lock")
    with pytest.raises(EngineError, match="line 1: 'md5:00' is not sha256"):
        parse_lock("uv==0.13.8 --hash=md5:00\n", "lock")


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.txt")), ids=lambda path: path.stem)
def test_the_shipped_locks_name_what_may_be_installed(path: Path) -> None:
    pins = read_lock(str(path), "engine_requirements")
    digests = [digest for pin in pins for digest in pin.hashes]
    assert len(set(digests)) == len(digests) >= len(pins)


def test_a_wheel_that_the_lock_does_not_name() -> None:
    pin = Pin("ray", "2.60.0", (A,))
    assert unexpected_wheels({pin: "ray.whl"}, {"ray.whl": A}) == {}
    assert unexpected_wheels({pin: "ray.whl"}, {"ray.whl": B}) == {"ray.whl": B}


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("ray>=2.54", "ray>=2.54"),
        ("ray==2.*", r"ray==2\.\*"),
        ("ray", "'ray'"),
        ("six==1.0; python_version > '3'", "six"),
        ("--extra-index-url=https://example.org/simple", "--extra-index-url"),
        ("-r other.txt", "-r other.txt"),
        ("ray @ file:///tmp/ray.whl", "ray @ file"),
    ],
)
def test_a_line_that_is_no_exact_pin_is_named(line: str, quoted: str) -> None:
    with pytest.raises(EngineError, match=rf"my\.txt, line 2: .*{quoted}.*is not an exact pin"):
        parse_lock(f"uv==0.13.8\n{line}\n", "my.txt")


def test_contradicting_and_empty_locks() -> None:
    with pytest.raises(EngineError, match=r"line 2: ray==2\.61\.0 contradicts ray==2\.60\.0"):
        parse_lock("ray==2.60.0\nray==2.61.0\n", "lock")
    with pytest.raises(EngineError, match="no pins"):
        parse_lock("# nothing\n", "lock")


PINS = [Pin("ray", "2.60.0"), Pin("vllm", "0.32.0+cpu"), Pin("uv", "0.13.8")]


def test_a_lock_must_hold_the_engine() -> None:
    assert check_lock(PINS, "lock", "2.60.0", "0.32.0") == {"ray": "2.60.0", "vllm": "0.32.0+cpu"}
    for index, name in enumerate(("ray", "vllm", "uv")):
        with pytest.raises(EngineError, match=f"{name} is not pinned"):
            check_lock([pin for position, pin in enumerate(PINS) if position != index], "lock")


def test_an_old_ray_is_refused_with_the_reason() -> None:
    with pytest.raises(EngineError, match=r"ray 2\.53\.0 is too old.*CVE-2023-48022"):
        check_lock([Pin("ray", "2.53.0"), *PINS[1:]], "lock")
    with pytest.raises(EngineError, match="ray main is too old"):
        check_lock([Pin("ray", "main"), *PINS[1:]], "lock")


@pytest.mark.parametrize(
    ("ray", "vllm", "variable"), [("2.61.0", "", "engine_ray_version"), ("", "0.33.0", "engine_vllm_version")]
)
def test_a_declared_version_must_agree_with_the_lock(ray: str, vllm: str, variable: str) -> None:
    with pytest.raises(EngineError, match=variable):
        check_lock(PINS, "lock", ray, vllm)


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("1.0", "1.0", True),
        ("1.0", "1.0+cu130", True),
        ("1.0+cpu", "1.0", False),
        ("1.0+cpu", "1.0+cu130", False),
        ("1.0", "1.0.1", False),
        ("1.0", "", False),
    ],
)
def test_local_versions(wanted: str, found: str, same: bool) -> None:
    assert same_version(wanted, found) is same


def test_targets_are_checked() -> None:
    assert make_target("3.12", "aarch64", "2.39") == SPARK
    assert SPARK.label == "cp312-aarch64"
    for bad in (("3", "aarch64", "2.39"), ("3.12", "riscv64", "2.39"), ("3.12", "x86_64", "")):
        with pytest.raises(EngineError):
            make_target(*bad)


def test_platforms_go_down_to_the_oldest() -> None:
    tags = LAB.platforms()
    assert tags[0] == "manylinux_2_36_x86_64"
    assert tags.index("manylinux_2_17_x86_64") < tags.index("manylinux2014_x86_64") < tags.index("manylinux1_x86_64")
    assert tags[-1] == "linux_x86_64"
    assert "manylinux_2_37_x86_64" not in tags


@pytest.mark.parametrize(
    ("filename", "target", "runs"),
    [
        ("ray-2.60.0-cp312-cp312-manylinux2014_aarch64.whl", SPARK, True),
        ("ray-2.60.0-cp312-cp312-manylinux2014_aarch64.whl", LAB, False),
        ("ray-2.60.0-cp311-cp311-manylinux2014_x86_64.whl", LAB, True),
        ("vllm-0.26.0-cp38-abi3-manylinux_2_28_x86_64.whl", LAB, True),
        ("vllm-0.26.0-cp313-abi3-manylinux_2_28_x86_64.whl", LAB, False),
        ("torch-2.13.0-cp311-cp311-manylinux_2_40_x86_64.whl", LAB, False),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", LAB, True),
        ("pybase64-1.5.1-cp311-cp311-manylinux1_x86_64.manylinux2014_x86_64.whl", LAB, True),
        ("six-1.17.0-py2.py3-none-any.whl", SPARK, True),
        ("interegular-0.3.3-py37-none-any.whl", LAB, True),
        ("future-1.0-py313-none-any.whl", LAB, False),
        ("uv-0.13.8-py3-none-manylinux_2_28_aarch64.whl", SPARK, True),
        ("uv-0.13.8-py3-none-musllinux_1_1_aarch64.whl", SPARK, False),
        ("x-1-cp311-cp311t-manylinux_2_28_x86_64.whl", LAB, False),
        ("x-1-cp310-cp310-manylinux_2_28_x86_64.whl", LAB, False),
        ("x-1-py2-none-any.whl", LAB, False),
    ],
)
def test_which_wheel_runs_where(filename: str, target: Target, runs: bool) -> None:
    wheel = parse_wheel(filename)
    assert wheel is not None
    assert (wheel_rank(wheel, target) is not None) is runs


@pytest.mark.parametrize("name", ["notes.txt", "ray.whl", "ray-2.60.0.tar.gz", "a-b-c-d-e-f-g.whl"])
def test_what_is_no_wheel(name: str) -> None:
    assert parse_wheel(name) is None


def test_the_best_wheel_is_chosen_and_the_missing_are_named() -> None:
    names = [
        "msgspec-0.22.0-py3-none-any.whl",
        "msgspec-0.22.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "msgspec-0.22.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "msgspec-0.21.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "ray-2.60.0-cp312-cp312-manylinux2014_x86_64.whl",
        "README",
    ]
    pins = [Pin("msgspec", "0.22.0"), Pin("ray", "2.60.0")]
    chosen, missing = select_wheels(pins, names, LAB)
    assert chosen == {pins[0]: "msgspec-0.22.0-cp311-cp311-manylinux_2_28_x86_64.whl"}
    assert missing == missing_pins(pins, names, LAB) == [pins[1]]


def test_pip_is_asked_for_the_target_and_for_no_index() -> None:
    argv = pip_download_argv(["pip"], "/tmp/pins.txt", "/wheels", SPARK)
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version=3.12", "--abi=cp312"} <= set(argv)
    assert "--platform=manylinux_2_39_aarch64" in argv
    assert not any("index" in word for word in argv)
    assert argv[-1] == "--requirement=/tmp/pins.txt"


def test_a_set_is_known_by_its_contents() -> None:
    one = set_digest({"a.whl": "1" * 64, "b.whl": "2" * 64})
    assert one == set_digest({"b.whl": "2" * 64, "a.whl": "1" * 64})
    assert one != set_digest({"a.whl": "1" * 64, "b.whl": "3" * 64})


def test_uv_comes_out_of_its_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "uv-0.13.8-py3-none-any.whl"

    def write(*names: str) -> str:
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in names:
                archive.writestr(name, "#!/bin/sh\n")
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    digest = write("uv-0.13.8.data/scripts/uvx", "uv-0.13.8.data/scripts/uv")
    path = extract_uv(str(wheel), digest, str(tmp_path / "bin"))
    assert Path(path).read_text() == "#!/bin/sh\n"
    assert os.access(path, os.X_OK)
    with pytest.raises(EngineError, match=f"its SHA-256 is {digest}, not {A}"):
        extract_uv(str(wheel), A, str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(EngineError, match="no executable of uv"):
        extract_uv(str(wheel), write("readme"), str(tmp_path / "bin"))
    with pytest.raises(EngineError, match="no wheel of uv"):
        uv_wheel({"ray-2.60.0-py3-none-any.whl": A})


def test_names_have_one_spelling() -> None:
    assert canonical("Foo._-Bar") == "foo-bar"


def test_parity_names_who_differs() -> None:
    hosts = {
        "spark-01": {"python": "3.12", "ray": "2.60.0", "vllm": "0.32.0"},
        "spark-02": {"python": "3.12", "ray": "2.59.0"},
    }
    names = compare_parity(hosts)
    assert names == ["ray", "vllm"]
    assert parity_table(hosts, names).splitlines() == [
        "host      ray     vllm",
        "spark-01  2.60.0  0.32.0",
        "spark-02  2.59.0  -",
    ]
    assert compare_parity({"a": hosts["spark-01"], "b": dict(hosts["spark-01"])}) == []


def test_an_installation_asks_nobody_and_resolves_nothing() -> None:
    argv = uv_install_argv("/t/uv", "/v/bin/python", "--requirement=/t/wheels.txt")
    assert argv[:4] == ["/t/uv", "pip", "install", "--quiet"]
    assert {"--python=/v/bin/python", "--offline", "--no-index", "--no-deps", "--require-hashes"} == set(argv[4:9])
    assert argv[9:] == ["--requirement=/t/wheels.txt"]


def test_wheels_are_given_to_uv_with_their_hashes() -> None:
    wheels = {
        "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl": A,
        "uv-0.13.8-py3-none-linux_x86_64.whl": B,
        "aiohttp_cors-0.8.1-py3-none-any.whl": B,
    }
    assert uv_wheel(wheels) == "uv-0.13.8-py3-none-linux_x86_64.whl"
    assert wheel_lines("/opt/my wheels", wheels).splitlines() == [
        f"aiohttp-cors @ file:///opt/my%20wheels/aiohttp_cors-0.8.1-py3-none-any.whl --hash=sha256:{B}",
        f"torch @ file:///opt/my%20wheels/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl --hash=sha256:{A}",
        f"uv @ file:///opt/my%20wheels/uv-0.13.8-py3-none-linux_x86_64.whl --hash=sha256:{B}",
    ]
