# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lies of one host, in the order in which a cluster meets it: each test goes on where the one before it ended.

Every run holds the controller's files, its terminal and the operator's own key against what they may be (conftest).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fanout_routes import part_size

from tests.integration.border.conftest import TOP
from tests.integration.border.lies import ACTED_ON, FORGED, HOSTILE, LIE, NAMES, SHAPES
from tests.integration.border_lab.conftest import STORE, Edge
from tests.unit.hub_stand_in import COMMIT, Models, hub_of

sys.path.insert(0, str(TOP / "lab" / "engine"))

# after the path was set: the lab's engine is a folder of programs, not a package
import packages

MIB = 1 << 20
#: no recipe, so that no model is asked of the hub but the test's own
PLAIN: dict[str, Any] = {"vllm_serve_recipe": ""}
NETWORK = "--tags=os_hardening,network"


def node(**forged: Any) -> dict[str, Any]:
    return {"node_info": {"ansible_facts": {"sparkthor_node": forged}}}


def test_discovery_takes_names_and_no_more(edge: Edge) -> None:
    """A name that would be YAML is refused with its address; what else is said of a machine does not get in."""
    asked = {"discover_addresses": list(edge.addresses.values()), "fleet": False}
    honest = edge.play("discover", may=("truth/",), discover_inventory="truth", **asked)
    assert honest.rc == 0, honest.output
    run = f"touch {edge.home}/forged"
    name = f"x:\n          evil: \"{{{{ lookup('pipe', '{run}') }}}}\"\n        y"
    edge.lie({**node(hostname=name), "*": LIE})
    refused = edge.play("discover", discover_inventory="cluster", **asked)
    assert refused.rc != 0, refused.output
    assert edge.addresses[edge.liar] in refused.output
    assert edge.honest not in refused.output.partition("ERROR")[2]
    for shape in SHAPES:
        edge.lie({"*": {**LIE, **dict.fromkeys(NAMES, shape)}, **node(kernel=shape, os={"pretty": shape})})
        shown = edge.play("discover", **asked)
        assert edge.addresses[edge.honest] in shown.output
    edge.lie({"*": LIE, **node(kernel=HOSTILE, os={"pretty": HOSTILE}, driver=HOSTILE)})
    found = edge.play("discover", may=("cluster/",), discover_inventory="cluster", **asked)
    assert found.rc == 0, found.output
    for path in (edge.home / "truth").rglob("*.yml"):
        text = (edge.home / "cluster" / path.relative_to(edge.home / "truth")).read_text(encoding="utf-8")
        assert not ACTED_ON.search(text)
        assert yaml.safe_load(text) == yaml.safe_load(path.read_text(encoding="utf-8"))


def test_what_it_says_of_itself_configures_nothing(edge: Edge) -> None:
    """Hosts are deployed with the lies on; without them nothing is left to change on either."""
    for shape in SHAPES:
        edge.lie({"*": {**LIE, **dict.fromkeys(NAMES, shape)}})
        run = edge.play("site", NETWORK, may=("cluster/.secrets/",), **PLAIN)
        run.refused(edge.liar, "to node_info cannot be used: ")
    edge.lie({"*": LIE, **node(**FORGED)})
    run = edge.play("site", NETWORK, may=("cluster/.secrets/",), **PLAIN)
    assert run.rc == 0, run.output
    edge.lie({})
    again = edge.play("site", NETWORK, **PLAIN)
    assert (again.rc, again.changed) == (0, {edge.liar: 0, edge.honest: 0}), again.output


def model(folder: Path, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """A model on the controller as it is declared, and what a host's store holds of it then."""
    (folder / name).mkdir()
    for file, size in (("model.safetensors", 3 * MIB + 1), ("config.json", 300)):
        (folder / name / file).write_bytes(os.urandom(size))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / name).iterdir()}
    return {"name": name, "source": str(folder / name)}, {f"./{name}/{file}": found for file, found in files.items()}


def of(store: dict[str, str], name: str) -> dict[str, str]:
    return {path: digest for path, digest in store.items() if path.startswith(f"./{name}/")}


def copy(edge: Edge, declared: dict[str, Any]) -> Any:
    return edge.play("site", "--tags=model_store", may=("cluster/",), **PLAIN, model_store_models=[declared])


def test_what_it_claims_to_have_is_not_passed_on(edge: Edge) -> None:
    """It says that it lacks nothing, so that others are given the files by it."""
    declared, digests = model(edge.home, "claimed")
    edge.lie({"*": LIE, "model_copy": {"need": []}})
    run = copy(edge, declared)
    assert run.rc != 0
    assert edge.liar in run.output
    assert of(edge.store(edge.honest), "claimed") in ({}, digests)
    edge.lie({"*": LIE})
    run = copy(edge, declared)
    assert run.rc == 0, run.output
    for host in edge.hosts:
        assert of(edge.store(host), "claimed") == digests


def test_what_it_changed_is_not_passed_on(edge: Edge) -> None:
    """Its file has the size and the time of the right one, and other bytes."""
    declared, digests = model(edge.home, "changed")
    edge.lie({"*": LIE})
    assert copy(edge, declared).rc == 0
    weights = f"$(readlink -f {STORE}/changed)/model.safetensors"
    edge.on(edge.liar, f"f={weights}; touch -r $f /tmp/t; printf evil | dd of=$f conv=notrunc status=none; "
                       "touch -r /tmp/t $f")  # fmt: skip
    edge.on(edge.honest, f"cd {STORE} && rm -rf changed changed@* .records/changed*")
    run = copy(edge, declared)
    assert of(edge.store(edge.honest), "changed") in ({}, digests), run.output
    assert run.rc != 0 or of(edge.store(edge.honest), "changed") == digests
    edge.on(edge.liar, f"cd {STORE} && rm -rf changed changed@* .records/changed*")
    run = copy(edge, declared)
    assert run.rc == 0, run.output
    assert of(edge.store(edge.honest), "changed") == digests


def test_its_part_digests_are_not_proof(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone has the weights, in its hub's cache, and says for others by what their parts are proved."""
    declared, digests = model(edge.home, "hub")
    files = {path.name: path.read_bytes() for path in (edge.home / "hub").iterdir()}
    weights = "model.safetensors"
    sha256 = digests[f"./hub/{weights}"]
    blob = f"/home/nvidia/.cache/huggingface/hub/models--owner--hub/blobs/{sha256}"
    edge.on(edge.liar, f"install -d -o nvidia {blob.rpartition('/')[0]}")
    send(edge, edge.home / "hub" / weights, blob)
    edge.on(edge.liar, "chown -R nvidia /home/nvidia/.cache")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    declared = {"name": "hub", "source": "owner/hub", "revision": COMMIT}
    with hub_of(Models({"owner/hub": files})) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        wrong = hashlib.sha256(b"wrong").hexdigest()
        # as many as there are, so that they are passed on, and what is none
        count = -(-len(files[weights]) // part_size(len(files[weights])))
        for parts in ({sha256: [wrong] * count}, {sha256: [HOSTILE]}, HOSTILE):
            edge.lie({"*": LIE, "model_fanout parts": {"parts": parts}})
            run = copy(edge, declared)
            assert run.rc != 0, run.output
            assert of(edge.store(edge.honest), "hub") in ({}, digests)
            assert edge.liar in run.output
        edge.lie({"*": LIE})
        run = copy(edge, declared)
    assert run.rc == 0, run.output
    assert of(edge.store(edge.honest), "hub") == digests


def send(edge: Edge, source: Path, target: str) -> None:
    """A file of any bytes to the lying host."""
    text = source.read_bytes().hex()
    edge.lab.exec(edge.liar, ["bash", "-c", f"python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex("
                                            f"sys.stdin.read()))' > {target}"], stdin=text)  # fmt: skip


def test_its_report_of_a_copy_is_text_and_proves_nothing(edge: Edge) -> None:
    """The controller follows a copy at the host that it begins at."""
    declared, digests = model(edge.home, "told")
    report = {"state": "failed", "error": f"broken {HOSTILE}", "received": 1, "want": 2, "upstream": HOSTILE}
    edge.lie({"*": LIE}, status=json.dumps({"nodes": {edge.liar: report, HOSTILE: report}}))
    run = copy(edge, declared)
    assert run.rc != 0
    assert f"host {edge.liar}: broken" in run.output
    assert of(edge.store(edge.honest), "told") in ({}, digests)
    done = {"state": "done", "received": 1, "want": 1}
    edge.lie({"*": LIE}, status=json.dumps({"nodes": {edge.honest: done}}))
    copy(edge, declared)
    assert of(edge.store(edge.honest), "told") in ({}, digests)
    edge.lie({"*": LIE})
    run = copy(edge, declared)
    assert run.rc == 0, run.output
    assert of(edge.store(edge.honest), "told") == digests


def lines(text: str, host: str) -> list[str]:
    """What the doctor found at one host alone."""
    findings = json.loads(text)["findings"]
    return sorted(item["rule"] for item in findings if item["hosts"] == [host])


def test_doctor_and_capture_keep_what_they_are_told_as_text(edge: Edge) -> None:
    path = edge.home / "doctor.json"
    edge.lie({})
    assert edge.play("doctor", may=("doctor.json",), doctor_json=str(path)).rc == 0
    known = lines(path.read_text(encoding="utf-8"), edge.honest)
    edge.on(edge.liar, f"printf %b {json.dumps(HOSTILE)} | logger -t sparkthor-vllm; "
                       "head -c 3000000 /dev/zero | tr '\\0' x | logger -t sparkthor-vllm --size 3000000")  # fmt: skip
    edge.on(edge.liar, "cd /home/nvidia && mkdir -p .cache/vllm .cache/huggingface && mkfifo .cache/vllm/log && "
                       "ln -sfn /etc/shadow .cache/huggingface/token")  # fmt: skip
    for number, shape in enumerate(SHAPES):
        edge.lie({"*": {**LIE, **dict.fromkeys(NAMES, shape)}})
        run = edge.play("doctor", may=("doctor.json",), doctor_json=str(path))
        assert run.rc == 0, run.output
        text = path.read_text(encoding="utf-8")
        assert not ACTED_ON.search(text)
        assert lines(text, edge.honest) == known
        archive = edge.home / f"capture-{number}.tar.gz"
        run = edge.play("capture", may=(archive.name,), capture_file=str(archive))
        assert run.rc == 0, run.output
        with tarfile.open(archive) as files:
            for member in files:
                assert member.isfile() or member.isdir(), member.name
                assert not ACTED_ON.search(member.name)
                assert not {"..", ""} & set(member.name.split("/")), member.name
                assert not member.isfile() or b"root:" not in files.extractfile(member).read()


def wheels(folder: Path, vllm: str) -> dict[str, Any]:
    """Stand-ins for Ray and vLLM with the real installer, and the variables that name them."""
    subprocess.run([sys.executable, "lab/engine/prepare.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    folder.mkdir()
    (uv,) = (TOP / ".lab/engine/wheels").glob("uv-*.whl")
    shutil.copy(uv, folder)
    versions = {"ray": "2.60.0", "vllm": vllm, "uv": uv.name.split("-")[1]}
    for name in ("ray", "vllm"):
        packages.write_wheel(
            str(folder), name, versions[name], {f"{name}/__init__.py": f"__version__ = {vllm!r}\n".encode()}
        )
    lock = folder.with_suffix(".txt")
    pins = []
    for name, version in versions.items():
        (path,) = folder.glob(f"{name}-*.whl")
        pins.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    lock.write_text("".join(pins), encoding="utf-8")
    return {"engine_runtime": "venv", "engine_requirements": str(lock), "engine_wheel_dir": str(folder), **PLAIN}


def engine(edge: Edge, host: str) -> str:
    """What a host would import as vLLM."""
    return edge.on(host, "cat /opt/sparkthor/venv/lib/python*/site-packages/vllm/__init__.py 2>/dev/null", check=False)


def test_its_wheels_are_not_installed_on_others(edge: Edge) -> None:
    """The engine comes to other hosts by the one that lacks least, which is the one that lies.

    A run ends where the stand-in for vLLM is asked for its options, after it was installed: what is there counts.
    """
    given = wheels(edge.home / "first", "0.32.0+cpu")
    right = "__version__ = '0.32.0+cpu'\n"
    edge.lie({"*": LIE, "engine_venv": {"need": []}})
    run = edge.play("site", "--tags=engine", may=("cluster/",), **given)
    assert run.rc != 0
    assert edge.liar in run.output
    assert engine(edge, edge.honest) in ("", right)
    # it had them whole once, and has put other bytes in their place
    edge.lie({"*": LIE})
    run = edge.play("site", "--tags=engine", may=("cluster/",), **given)
    assert engine(edge, edge.honest) == right, run.output
    edge.on(edge.liar, "for f in $(find /opt/sparkthor/wheels -name 'vllm-*'); do touch -r $f /tmp/t; "
                       "printf evil | dd of=$f conv=notrunc status=none; touch -r /tmp/t $f; done")  # fmt: skip
    edge.on(edge.honest, "rm -rf /opt/sparkthor/venv /opt/sparkthor/venvs /opt/sparkthor/wheels")
    run = edge.play("site", "--tags=engine", may=("cluster/",), **given)
    assert engine(edge, edge.honest) in ("", right), run.output
    edge.on(edge.liar, "rm -rf /opt/sparkthor/wheels")
    run = edge.play("site", "--tags=engine", may=("cluster/",), **given)
    assert engine(edge, edge.honest) == right, run.output
    newer = wheels(edge.home / "second", "0.33.0+cpu")
    for shape in SHAPES:
        edge.lie({"*": {**LIE, **dict.fromkeys(NAMES, shape)}, **node(declared={"generation": 1 << 40})})
        # a model is named, or no host would be asked
        run = edge.play("upgrade", **newer, vllm_serve_model="owner/model")
        assert run.rc != 0, run.output
        assert engine(edge, edge.honest) == right, run.output
