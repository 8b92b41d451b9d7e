# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of the community, 25 of each kind, field by field against what their own tools run.

What is expected is not derived by the code under test: version 1 is filled by str.format, as its tool does it, version
2 by the rule of its tool, the vLLM project's commands are those that its own command builder printed, and all of them
are read by an argparse parser that is made from an option table.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import translated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import SHIPPED

COMMUNITY = Path(__file__).parents[4] / "fixtures" / "recipes" / "community"
#: what the roles decide
OURS = {"host", "port", "distributed-executor-backend", "nnodes", "node-rank", "master-addr", "headless"}
#: files of the original images
FILES = re.compile(r"[\w./-]+\.(jinja|py)")
#: options of the original builds, which no table has
FORKS = ("gpu-memory-utilization-gb", "mxfp4-backend", "mxfp4-layers", "tool-call-parser-plugin")


def documents(name: str) -> list[Any]:
    with (COMMUNITY / name).open(encoding="utf-8") as stream:
        rows = list(yaml.safe_load_all(stream))
    assert len(rows) == 25
    return [pytest.param(row, id=row["path"]) for row in rows]


def parser() -> argparse.ArgumentParser:
    """What vLLM 0.33 reads, by its option table; short forms as its documentation has them."""
    made = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    made.add_argument("model", nargs="?")
    short = {"tensor-parallel-size": "-tp", "pipeline-parallel-size": "-pp", "quantization": "-q"}
    short |= {"enable-expert-parallel": "-ep", "optimization-level": "-O", "data-parallel-size": "-dp"}
    convert: dict[str, Any] = {"int": whole, "float": float, "json": json.loads}
    table = json.loads((Path(SHIPPED) / "0.33.0.json").read_text(encoding="utf-8"))
    for name, entry in [*table["options"].items(), *((name, {"kind": "str"}) for name in FORKS)]:
        if name == "model":
            continue
        strings = [f"--{name}", *([short[name]] if name in short else [])]
        settings: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
        if entry["kind"] == "bool":
            settings["action"] = argparse.BooleanOptionalAction
        elif entry["kind"] == "flag":
            settings["action"] = "store_true"
        elif entry["kind"] == "list":
            settings.update(nargs="+", type=whole)
        else:
            # a level is of a class of numbers, which the table calls text
            settings["type"] = int if name == "optimization-level" else convert.get(entry["kind"], str)
        made.add_argument(*strings, **settings)
    return made


def whole(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def expected(command: str) -> dict[str, Any]:
    """Every option of a command as vLLM would hold it; the model under `model`."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    words = words[words.index("serve") + 1 :]
    plain: list[str] = []
    dotted: dict[str, Any] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not re.match(r"-[-a-zA-Z]", word):
            plain.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if "." not in name else name
        if "." not in name:
            plain.append(name + equals + value)
            continue
        if not equals:
            value = words[index]
            index += 1
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        option, *path = name.replace("-cc.", "--compilation-config.").lstrip("-").split(".")
        inner = dotted.setdefault(option.replace("_", "-"), {})
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = parsed
    return {**vars(parser().parse_args(plain)), **dotted}


def carried(recipe: dict[str, Any], hosts: int) -> dict[str, Any]:
    """Everything of a translated recipe, under the names of vLLM's options."""
    found: dict[str, Any] = {"model": recipe["model"]}
    for key, value in recipe["args"].items():
        option, *path = key.split(".")
        if option.startswith("no-"):
            option, value = option[3:], False
        if not path:
            found[option] = value
            continue
        inner = found.setdefault(option, {})
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    for key, option in (("tensor_parallel", "tensor-parallel-size"), ("pipeline_parallel", "pipeline-parallel-size")):
        if key in recipe["splits"].get(hosts, {}):
            found[option] = recipe["splits"][hosts][key]
    for key, option in (("max_model_len", "max-model-len"), ("served_model_name", "served-model-name")):
        if recipe[key]:
            found[option] = recipe[key]
    if recipe["gpu_memory_gib"]:
        found["gpu-memory-utilization-gb"] = str(int(recipe["gpu_memory_gib"]))
    return found


def same(recipe: dict[str, Any], command: str, hosts: int) -> None:
    """Option by option; what is not carried over is named."""
    want = expected(command)
    notes = "\n".join(recipe["untranslated"])
    for name in [name for name in want if name in OURS or FILES.fullmatch(str(want[name]))]:
        if name not in ("nnodes", "node-rank", "master-addr"):  # the builder's, not the recipe's
            assert f"--{name} " in notes
        del want[name]
    if f"--quantization {want.get('quantization')} (no method of vLLM" in notes:
        del want["quantization"]  # the name of a packing, in whose place vLLM puts the checkpoint's own method
    have = carried(recipe, hosts)
    names = want.get("served-model-name")
    if isinstance(names, list) and len(names) == 1:
        want["served-model-name"] = names[0]
    for name, size in (("tensor-parallel-size", 1), ("pipeline-parallel-size", 1)):
        want.setdefault(name, size)
        have.setdefault(name, size)
    if recipe["hosts"] == 1:
        have["tensor-parallel-size"] = want["tensor-parallel-size"]  # solo_only: the original tool sets it to 1
    assert have == want


def plain_environment(recipe: dict[str, Any], given: dict[str, Any]) -> None:
    notes = "\n".join(recipe["untranslated"])
    for name, value in given.items():
        if name in recipe["environment"]:
            assert recipe["environment"][name] == str(value)
        else:
            assert f"env.{name} (" in notes
    assert set(recipe["environment"]) <= set(given)


def around(recipe: dict[str, Any], source: dict[str, Any]) -> None:
    """Runtime, image, environment, patches and number of hosts."""
    notes = "\n".join(recipe["untranslated"])
    plain_environment(recipe, source.get("env") or {})
    for patch in source.get("mods") or []:
        assert patch in notes
    image = source["container"]
    assert recipe["image"] == (image if "/" in image else "")
    assert bool("/" not in image) == (f"container {image} (in no registry" in notes)
    if source.get("solo_only") or source.get("max_nodes") == 1:
        assert recipe["hosts"] == 1
    else:
        least = max(source.get("min_nodes", 1), 2 if source.get("cluster_only") else 1)
        allowed = recipe["hosts"] if isinstance(recipe["hosts"], list) else range(1, 9)
        assert min(allowed) == least


@pytest.mark.parametrize("row", documents("spark_vllm_docker.txt"))
def test_version_1(row: dict[str, Any]) -> None:
    source = row["recipe"]
    command = source["command"].format(**source["defaults"])
    recipe = translated(source, row["path"], "stem")
    same(recipe, command, world(expected(command)))
    around(recipe, source)


@pytest.mark.parametrize("row", documents("sparkrun.txt"))
def test_version_2(row: dict[str, Any]) -> None:
    source = row["recipe"]
    if source["runtime"] != "vllm":
        with pytest.raises(RecipeError, match=f"is for {source['runtime']}"):
            translated(source, row["path"], "stem")
        return
    values = {**source["defaults"], "model": source["model"]}
    command = re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), source["command"])
    recipe = translated(source, row["path"], "stem")
    same(recipe, command, world(expected(command)))
    around(recipe, source)


def world(options: dict[str, Any]) -> int:
    return int(options.get("tensor-parallel-size", 1)) * int(options.get("pipeline-parallel-size", 1))


@pytest.mark.parametrize("row", documents("vllm_project.txt"))
def test_the_vllm_project(row: dict[str, Any]) -> None:
    for built in row["built"]:
        recipe = translated(row["recipe"], row["path"], "stem", built["variant"], built["hosts"])
        assert built["hosts"] in recipe["hosts"]
        command = built["command"]
        if "--nnodes" not in command:
            # a strategy for one machine with several GPUs: here each Spark is one of them
            command += f" --tensor-parallel-size {built['hosts']}"
        same(recipe, command, built["hosts"])
        ours = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")  # of the builder's strategy
        plain_environment(recipe, {key: value for key, value in built["env"].items() if key not in ours})
