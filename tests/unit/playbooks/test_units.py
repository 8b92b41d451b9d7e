# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of every inventory, as they are written to a host: they start the engine that is asked for, and no step of
root's gets a variable of the engine's.

systemd gives a unit's environment to all of its steps, and the loader obeys LD_PRELOAD before a program, such as
``env -i``, could clear it.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from .test_render import TOP, render

#: what a unit may say of the environment of all its steps: where Ray and vLLM find their credentials
HARMLESS = re.compile(r"(RAY_AUTH_MODE|RAY_AUTH_TOKEN_PATH|RAY_USE_TLS|RAY_TLS_[A-Z_]+|HF_TOKEN_PATH)=(token|1|%d/\S+)")
HARDWARE = sorted(path.name for path in (TOP / "inventories").glob("[1-9]*"))
LABS = sorted(path.name for path in (TOP / "inventories").iterdir() if path.is_dir() and path.name not in HARDWARE)
#: one image for all hosts, whatever their kinds are; a recipe's own is for Sparks
CONTAINER = {"engine_runtime": "container", "engine_image": "reg.io/vllm:1.0"}
ENGINES: list[dict[str, Any]] = [
    {**CONTAINER, "vllm_serve_executor": "mp"},
    {"engine_runtime": "venv", "vllm_serve_executor": "mp"},
    {"engine_runtime": "venv", "vllm_serve_from_hub": True, "ray_node_tls": True},
]


def broken(text: str) -> list[str]:
    """Lines by which a step of root's gets an environment that is not a constant of ours."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    given = [line.partition("=")[::2] for line in lines if "=" in line and not line.startswith(("#", ";"))]
    steps = [value.strip() for name, value in given if re.fullmatch(r"Exec(Condition|Start|StartPre|StartPost)", name)]
    steps += [value.strip() for name, value in given if re.fullmatch(r"Exec(Reload|Stop|StopPost)", name)]
    users = [value for name, value in given if name in ("User", "DynamicUser")]
    prefixes = [match.group() for step in steps if (match := re.match(r"[-@:+!|]*", step))]
    if users and not any(sign in prefix for prefix in prefixes for sign in "+!"):
        return []
    found = [f"{name}={value}" for name, value in given if name in ("EnvironmentFile", "PassEnvironment")]
    words = [word for name, value in given if name == "Environment" for word in shlex.split(value)]
    return found + [f"Environment={word}" for word in words if not HARMLESS.fullmatch(word)]


def units(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*/etc/systemd/system/*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("User=x\nEnvironmentFile=/e\nExecStart=/bin/x\n", 0),
        ("User=x\nEnvironmentFile=/e\nExecStartPre=-+/usr/bin/env -i x\nExecStart=/bin/x\n", 1),
        ("User=x\nEnvironmentFile=-/e\nExecStopPost=!/bin/y\nExecStart=/bin/x\n", 1),
        ("EnvironmentFile=/e\nPassEnvironment=A\nExecStart=/bin/x\n", 2),
        ('User=x\nEnvironment="LD_PRELOAD=/a b" RAY_AUTH_MODE=token\nExecStart=+/bin/x\n', 1),
        ("User=x\nEnvironment=RAY_AUTH_TOKEN_PATH=%d/ray_token\nExecStart=+/bin/x\n", 0),
    ],
)
def test_the_rule_sees_what_it_looks_for(text: str, lines: int) -> None:
    assert len(broken(text)) == lines


def hosts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_dir()]


def rendered(folder: Path, inventory: str, engine: dict[str, Any]) -> None:
    """Render an inventory into a folder; no step of root's in it has an environment that is not a constant of ours."""
    # each engine's variables lead somewhere, so that what reads them is seen
    extra = {"monitoring_enabled": True, "monitoring_prometheus": True, **engine}
    # the lab's model is made by its tools; nothing of it is in a unit
    extra["model_store_models"] = []
    for name in ("vllm_serve_env", "ray_node_env", "engine_extra_env"):
        extra[name] = {"LD_PRELOAD": "/evil.so"}
    done = render(folder, TOP / "inventories" / inventory, "-e", json.dumps(extra))
    assert done.returncode == 0, done.stdout + done.stderr
    found = units(folder)
    assert any(name.endswith("/sparkthor-vllm.service") for name in found)
    assert {name: lines for name, text in found.items() if (lines := broken(text))} == {}
    assert not [name for name, text in found.items() if "evil" in text]


def runtime(folder: Path) -> str:
    """What starts the engine on every host of a rendered cluster: ``container`` or ``venv``."""
    # without Ray the rank's own program starts the engine, as the group's file says
    groups = [json.loads(path.read_text())["command"] for path in folder.glob("*/etc/sparkthor/group.json")]
    starts = [" ".join(command) for command in groups] or [
        text
        for name, text in units(folder).items()
        if name.endswith(("/sparkthor-ray.service", "/sparkthor-vllm.service"))
    ]
    assert len(starts) > len(hosts(folder)) // 2
    [in_container] = {"sparkthor_host container run" in start for start in starts}
    assert {"/opt/sparkthor/venv/bin/" in start for start in starts} == {not in_container}
    return "container" if in_container else "venv"


@pytest.mark.parametrize("inventory", HARDWARE)
def test_every_inventory_has_units_for_either_engine(tmp_path: Path, inventory: str) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    rendered(own, inventory, {})
    assert len(hosts(own)) == sum(int(digit) for digit in inventory if digit.isdigit())
    change = {"container": {"engine_runtime": "venv"}, "venv": CONTAINER}[runtime(own)]
    rendered(other, inventory, change)
    assert runtime(other) == change["engine_runtime"]


@pytest.mark.parametrize(
    ("inventory", "engine"),
    [*((name, {}) for name in LABS), *(("3spark", engine) for engine in ENGINES)],
    ids=[*LABS, *(" ".join(map(str, engine.values())) for engine in ENGINES)],
)
def test_root_gets_no_variable_of_the_engine(tmp_path: Path, inventory: str, engine: dict[str, Any]) -> None:
    rendered(tmp_path, inventory, engine)
