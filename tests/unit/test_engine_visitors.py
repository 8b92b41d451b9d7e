# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new engine, and a new way to come to an image, has to visit; the other kinds are in test_visitors.py.

Every engine of the registry is asked of every visitor, so a new one fails where nobody thought of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence, host_status
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container, host_versions
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as on_hosts
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import ETC, Places
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import environment
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.teardown import TeardownSettings, plan_teardown
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench

from tests.unit import role_state
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving
from tests.unit.test_visitors import head_variables

MODEL, REVISION = "/var/lib/sparkthor/models/tiny@" + "a" * 16, "tiny@" + "a" * 16
SECRET = "a-key-that-nobody-may-see-0123456789"


def given_to(engine: PlannedEngine, **planned: Any) -> dict[str, Any]:
    """The variables of a head that serves a model of the store with this engine."""
    serving = {"engine": engine.name, "model": "tiny", "models": [{"name": "tiny"}], "args": {}, **planned}
    return started_by(with_serving(head_variables(), **serving), sorted(engine.can.executors)[0])


def configuration(engine: PlannedEngine) -> str:
    return f"{ETC}/{engine.on_host.config}"


def others(engine: PlannedEngine) -> list[PlannedEngine]:
    return [one for one in registry.ENGINES.values() if one is not engine]


def its_files_are_planned(engine: PlannedEngine, _root: Path) -> bool:
    """And so compared by drift, upgraded and written by a run."""
    found = files(plan(given_to(engine)))
    return on_hosts.engine_of(json.loads(found[Places().config])) is engine.on_host and (
        "tiny" in str(yaml.safe_load(found[configuration(engine)]).get(engine.on_host.model_key))
    )


def another_engine_takes_its_configuration_away(engine: PlannedEngine, _root: Path) -> bool:
    return all(configuration(engine) in plan(given_to(one))["state"]["restore"] for one in others(engine))


def a_teardown_takes_its_configuration(engine: PlannedEngine, _root: Path) -> bool:
    """Also where a recipe chose the engine, which a teardown does not read."""
    known = plan_teardown(TeardownSettings(teardown_parts="serving"), True)["serving"]
    taken = role_state.undone_runs("vllm_serve", __vllm_serve_groups=known)
    return any(configuration(engine) in (*state["absent"], *state["restore"]) for state in taken)


def the_way_back_brings_its_configuration(engine: PlannedEngine, _root: Path) -> bool:
    return configuration(engine) in plan(given_to(engine))["kept"]


def the_way_back_leaves_no_other_engines(engine: PlannedEngine, root: Path) -> bool:
    """To a configuration of this engine, from whichever came after it."""
    own, folder = root / engine.on_host.config, str(root / "kept")
    own.write_text(f"{engine.on_host.model_key}: {MODEL}\n")
    kept.keep("good", [str(own)], folder)
    own.unlink()
    for one in others(engine):
        (root / one.on_host.config).write_text(f"{one.on_host.model_key}: {MODEL}\n")
    kept.apply(kept.differences(kept.choose("good", folder), [], folder), lambda *_: (0, ""), str(root / "pending"))
    return [path.name for path in root.glob("*.yaml")] == [engine.on_host.config]


def a_prune_keeps_its_model(engine: PlannedEngine, root: Path) -> bool:
    text = files(plan(given_to(engine)))[configuration(engine)].replace("/var/lib/sparkthor/models/tiny", MODEL)
    (root / engine.on_host.config).write_text(text)
    return kept.revisions_needed(str(root / "*.yaml"), str(root / "none"), str(root / "none")) == [REVISION]


def status_and_evidence_name_its_model(engine: PlannedEngine, root: Path) -> bool:
    text = files(plan(given_to(engine)))[configuration(engine)]
    path = root / configuration(engine).lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    collector = evidence.Collector(lambda _argv: (127, "", ""), str(root))
    named = host_status.parse_options(text).get(engine.on_host.model_key)
    return bool(named) and named == collector.served_model()["path"] and engine.on_host.config in collector.files()


def status_names_its_version(engine: PlannedEngine, _root: Path) -> bool:
    package = engine.on_host.packages[0]
    return interesting({package: "9.9.9"}) == {package: "9.9.9"} and package in host_versions.ENGINE_PARTS


def a_benchmark_says_what_was_measured(engine: PlannedEngine, _root: Path) -> bool:
    """A row for a recipe names the engine, by the versions that the host tells."""
    used = {f"{engine.on_host.packages[0]} of h": "9.9.9"}
    row = {"throughput": 1.0, "streams": 1, "prompt": 1, "answer": 1}
    found = bench.catalogue_rows({"with": used, "taken": "2026-01-01", "rows": [row]}, 1, "h", "")
    return [one["engine"] for one in found] == [f"{engine.title} 9.9.9"]


def the_doctor_knows_its_process_and_shows_no_key_of_it(engine: PlannedEngine, root: Path) -> bool:
    process = root / "proc/41"
    process.mkdir(parents=True)
    (process / "cmdline").write_text("\0".join([*f"/opt/bin/{engine.on_host.program}".split(), "x"]) + "\0")
    variable = engine.on_host.key_variable or "HOME"
    (process / "environ").write_text(f"{variable}={SECRET}\0NCCL_DEBUG=INFO\0")
    [entry] = evidence.Collector(lambda _argv: (127, "", ""), str(root)).processes()
    wanted = "set" if engine.on_host.key_variable else ""
    return (entry["program"], entry["api_key"]) == (engine.name, wanted) and SECRET not in json.dumps(entry)


def its_key_stays_out_of_its_environment(engine: PlannedEngine, _root: Path) -> bool:
    """The front proxy alone knows keys: one in the environment is refused, with the variable to set instead."""
    name = engine.on_host.key_variable
    what, fix = environment.problem(name or "ANY_API_KEY", SECRET) or ("", "")
    return SECRET not in what and (not name or fix == "use vllm_serve_api_key")


ENGINE_VISITORS: tuple[Callable[[PlannedEngine, Path], bool], ...] = (
    its_files_are_planned,
    another_engine_takes_its_configuration_away,
    a_teardown_takes_its_configuration,
    the_way_back_brings_its_configuration,
    the_way_back_leaves_no_other_engines,
    a_prune_keeps_its_model,
    status_and_evidence_name_its_model,
    status_names_its_version,
    a_benchmark_says_what_was_measured,
    the_doctor_knows_its_process_and_shows_no_key_of_it,
    its_key_stays_out_of_its_environment,
)


@pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))
@pytest.mark.parametrize("visitor", ENGINE_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_every_engine(
    visitor: Callable[[PlannedEngine, Path], bool], engine: PlannedEngine, tmp_path: Path
) -> None:
    assert visitor(engine, tmp_path)


LOCK, INPUTS = "1" * 64, "2" * 64
BASE, RAY, BUILT, BOTH = (f"sha256:{letter * 64}" for letter in "abcd")
#: ways to come to the image that units run, with what it was made of, the last first
IMAGES = {"brought": [BASE], "with_ray": [RAY, BASE], "built": [BUILT, BASE], "built_with_ray": [BOTH, BUILT, BASE]}
LABELS = {
    BASE: {},
    RAY: {_image.LABEL_BASE: BASE, _image.LABEL_LOCK: LOCK},
    BUILT: {_image.LABEL_BASE: BASE, _image.LABEL_BUILD: INPUTS},
    BOTH: {_image.LABEL_BASE: BUILT, _image.LABEL_LOCK: LOCK, _image.LABEL_BUILD: INPUTS},
}
NAMES = {RAY: _image.derived_tag(BASE, LOCK), BUILT: _image.built_tag(INPUTS), BOTH: _image.derived_tag(BUILT, LOCK)}


class Docker:
    """A host's images; like Docker it removes none that another one is made of."""

    def __init__(self, there: list[str]) -> None:
        self.there = list(there)

    def __call__(self, argv: list[str], *_more: Any) -> tuple[int, str, str]:
        if argv[1] == "images":
            return 0, "\n".join(one for one in self.there if LABELS[one]), ""
        if argv[1] == "rmi" and not any(LABELS[one].get(_image.LABEL_BASE) == argv[-1] for one in self.there):
            self.there.remove(argv[-1])
            return 0, "", ""
        found = next((one for one in self.there if argv[-1] in (one, NAMES.get(one))), "")
        if argv[1:3] == ["image", "inspect"] and found:
            return 0, json.dumps([{"Id": found, "Config": {"Labels": LABELS[found]}}]), ""
        return 1, "", "No such image"


def host_with(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[image_host.DockerHost, Docker]:
    docker, host = Docker(there), image_host.DockerHost(str(root), 60)
    monkeypatch.setattr(image_host, "run_limited", docker)
    for image in reversed(there):
        # in the order in which they were brought and made
        host.note(image, brought=True)
    return host, docker


def a_prune_keeps_it_with_what_it_was_made_of(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    host, docker = host_with(there, root, monkeypatch)
    host.prune({there[0]}, 0)
    return docker.there == there


def a_prune_removes_it_when_nobody_needs_it(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    host, docker = host_with(there, root, monkeypatch)
    host.prune(set(), 0)
    return docker.there == []


def an_upgrade_keeps_what_served_before(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """It is named by the configuration that served last, and the way back asks for it."""
    config = root / "container.json"
    config.write_text(json.dumps({"image": there[0]}))
    monkeypatch.setattr(container, "CONFIG", str(config))
    monkeypatch.setattr(kept, "describe", lambda _items: {"runtime": "container"})
    folder = str(root / "kept")
    kept.keep("good", [str(config)], folder)
    asked: list[str] = []
    kept.differences(kept.choose("good", folder), [], folder, image_there=lambda one: bool(asked.append(one)) or True)
    with pytest.raises(kept.KeptError, match=there[0]):
        kept.differences(kept.choose("good", folder), [], folder, image_there=lambda _one: False)
    return kept.needed(folder).images == asked == [there[0]]


def drift_sees_that_it_is_gone(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Check mode says what it would bring, build or add."""
    host, _docker = host_with(there[1:], root, monkeypatch)
    actions: list[str] = []
    if there[0] == BUILT:
        base = host.image(BASE)
        assert base is not None
        image_host.with_steps(host, {"inputs": INPUTS}, True, base, actions)
    elif there[0] == BASE:
        target = {"image": "mine/vllm:7", "archive": None}
        monkeypatch.setattr(host, "answers", lambda: True)
        image_host.bring(host, {"target": target, "digest": "", "pull": True, "archive": ""}, True, actions)
    else:
        base = host.image(there[1])
        assert base is not None
        target = {"image": "mine/vllm:7", "lock": LOCK, "pins": [["ray", "2.60.0"]]}
        image_host.with_ray(host, {"target": target, "ray": True}, True, base, {"packages": {}}, actions)
    return len(actions) == 1


def hosts_are_told_apart_by_it(there: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whatever each host's Docker calls it: other steps are another image."""
    host, _docker = host_with(there, root, monkeypatch)
    base = host.image(BASE)
    targets = [{"image": "mine/vllm:7", **({"inputs": one} if BUILT in there else {})} for one in (INPUTS, "3" * 64)]
    first, second = (image_host._name_for_all({"target": one, "digest": ""}, base) for one in targets)
    return (first != second) is (BUILT in there) and first.startswith("sha256:")


IMAGE_VISITORS: tuple[Callable[[list[str], Path, pytest.MonkeyPatch], bool], ...] = (
    a_prune_keeps_it_with_what_it_was_made_of,
    a_prune_removes_it_when_nobody_needs_it,
    an_upgrade_keeps_what_served_before,
    drift_sees_that_it_is_gone,
    hosts_are_told_apart_by_it,
)


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("visitor", IMAGE_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_every_way_to_an_image(
    visitor: Callable[[list[str], Path, pytest.MonkeyPatch], bool],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert visitor(IMAGES[kind], tmp_path, monkeypatch)
