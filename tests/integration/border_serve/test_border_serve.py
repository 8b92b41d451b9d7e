# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lies of a worker while a cluster comes to serve and is upgraded: each test goes on where the former one ended.

Every run holds the controller's files, its terminal and the operator's own key against what they may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.integration.border.conftest import TOP
from tests.integration.border.lies import FORGED, HOSTILE, LIE, NAMES, SHAPES
from tests.integration.border_lab.conftest import Edge
from tests.integration.serve_container.derived import newer_image

ENGINE = TOP / ".lab/engine"
ARCHIVE = ENGINE / "image.tar"
KEPT = ("cluster/.secrets/", "cluster/.sparkthor/")
#: more than anybody declares one after the other
FAR = 1 << 40
#: what CPUs of a small machine can promise
PROOF = {"upgrade_speed": 0.2, "upgrade_wait": 300}


def node(**forged: Any) -> dict[str, Any]:
    return {"node_info": {"ansible_facts": {"sparkthor_node": forged}}}


@pytest.fixture(scope="session")
def given() -> dict[str, Any]:
    """What simulated hosts have instead of the image and the model of the inventory."""
    lab = yaml.safe_load((TOP / "inventories/lab_container/group_vars/cluster.yml").read_text(encoding="utf-8"))
    return {
        "engine_image_archive": str(ARCHIVE),
        "engine_image_requirements": str(TOP / "requirements/engine/lab-ray-cp311-x86_64.txt"),
        "engine_wheel_dir": str(ENGINE / "wheels"),
        "engine_extra_env": lab["engine_extra_env"],
        "engine_runtime": "container",
        "model_store_models": [{"name": "tiny-qwen3", "source": str(ENGINE / "model")}],
        "vllm_serve_recipe": "tiny-qwen3",
        "vllm_serve_tensor_parallel_size": 2,
        "vllm_serve_pipeline_parallel_size": 1,
    }


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    path = newer_image(ARCHIVE, tmp_path_factory.mktemp("newer"))
    yield {"engine_image_archive": str(path)}
    path.unlink()


def served(edge: Edge) -> str:
    """What the honest host's rank runs from: the newer image, the first one, or one of the liar's."""
    names = edge.on(edge.honest, "docker ps --format '{{.Names}}' | grep ^sparkthor-").split()
    assert names, "nothing serves"
    command = "cat /etc/liars-image 2>/dev/null || cat /etc/lab-image 2>/dev/null || echo first"
    (found,) = {edge.on(edge.honest, f"docker exec {name} sh -c '{command}'").strip() for name in names}
    return found


def answers(edge: Edge) -> bool:
    key = (edge.home / "cluster/.secrets/api_key").read_text(encoding="utf-8").strip()
    body = json.dumps({"model": "tiny-qwen3", "prompt": "hello", "max_tokens": 2})
    edge.lab.exec(edge.honest, ["bash", "-c", "umask 077; cat > /root/asked"], stdin=f"Authorization: Bearer {key}")
    asked = (
        "curl -s -m 60 -o /dev/null -w %{http_code} -H @/root/asked -H 'Content-Type: application/json' "
        f"-d '{body}' http://127.0.0.1:8000/v1/completions; rm /root/asked"
    )
    return edge.on(edge.honest, asked, check=False) == "200"


def generations(edge: Edge) -> list[int]:
    text = edge.on(edge.honest, "grep -rhoE '\"generation\": *[0-9]+' /etc/sparkthor /var/lib/sparkthor", check=False)
    return [int(found) for found in re.findall(r"\d+", text)]


def test_they_serve_and_what_it_says_decides_nothing(edge: Edge, given: dict[str, Any]) -> None:
    edge.lie({"*": LIE, **node(**FORGED)})
    run = edge.play("site", may=KEPT, **given)
    assert run.rc == 0, run.output
    assert (served(edge), answers(edge)) == ("first", True)
    edge.lie({})
    again = edge.play("site", may=KEPT, **given)
    assert (again.rc, again.changed) == (0, {edge.liar: 0, edge.honest: 0}), again.output


def test_it_raises_no_generation_beyond_belief(edge: Edge, given: dict[str, Any]) -> None:
    before = generations(edge)
    assert before
    edge.lie({"*": LIE, **node(declared={"generation": FAR})})
    edge.play("site", may=KEPT, **given)
    assert max(generations(edge)) < FAR
    assert (served(edge), answers(edge)) == ("first", True)


def test_an_image_that_it_put_in_its_place_is_not_passed_on(edge: Edge, given: dict[str, Any]) -> None:
    """Under the right name it has an image of its own; the other host lacks the right one."""
    edge.lie({"*": LIE, "engine_image": {"need": []}})
    edge.on(
        edge.liar,
        "names=$(docker images --format '{{.Repository}}:{{.Tag}}'); set -- $names; echo evil > /root/evil; "
        "c=$(docker create $1 true) && docker cp /root/evil $c:/etc/liars-image && i=$(docker commit $c) && "
        "docker rm $c && for n in $names; do docker tag $i $n; done",
    )
    edge.on(
        edge.honest,
        "systemctl stop sparkthor-watchdog sparkthor-vllm; docker rm -f sparkthor-vllm; "
        "docker images --format '{{.Repository}}:{{.Tag}}' | xargs -r docker rmi -f; rm -rf /opt/sparkthor/images",
        check=False,
    )
    assert not edge.on(edge.honest, "docker images -q")
    run = edge.play("site", may=KEPT, **given)
    edge.lie({"*": LIE})
    if run.rc != 0:
        assert edge.liar in run.output
    found = edge.on(
        edge.honest,
        "for i in $(docker images -q | sort -u); do docker run --rm --entrypoint cat $i /etc/liars-image; done",
        check=False,
    )
    assert "evil" not in found
    run = edge.play("site", may=KEPT, **given)
    assert run.rc == 0, run.output
    assert (served(edge), answers(edge)) == ("first", True)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_an_upgrade_by_answers_that_are_none_leaves_what_serves(
    edge: Edge, given: dict[str, Any], newer: dict[str, Any], shape: int
) -> None:
    edge.lie({"*": {**LIE, **dict.fromkeys(NAMES, SHAPES[shape])}})
    run = edge.play("upgrade", may=KEPT, **{**given, **newer, **PROOF})
    assert run.rc != 0, run.output
    assert edge.liar in run.why
    assert (served(edge), answers(edge)) == ("first", True)


def test_an_upgrade_reaches_its_change_with_the_lies_on(
    edge: Edge, given: dict[str, Any], newer: dict[str, Any]
) -> None:
    # a kernel and a driver that no other host has are refused
    edge.lie({"*": {**LIE, "msg": HOSTILE, "proof": HOSTILE}, **node(**FORGED, kernel=HOSTILE, driver=HOSTILE)})
    refused = edge.play("upgrade", may=KEPT, **{**given, **newer, **PROOF})
    refused.refused(edge.liar, "kernel", "")
    edge.lie({"*": {**LIE, "msg": HOSTILE, "proof": HOSTILE}, **node(**FORGED)})
    run = edge.play("upgrade", may=KEPT, **{**given, **newer, **PROOF})
    assert run.rc == 0, run.output
    assert (served(edge), answers(edge)) == ("newer", True)
    edge.lie({"*": LIE, **node(**FORGED)})
    back = edge.play("rollback", may=KEPT, roll_back_to="previous")
    assert back.rc == 0, back.output
    assert (served(edge), answers(edge)) == ("first", True)
