# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image that one host alone can pull: the others get it over the fabric. After the tests of the image's archive."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import TOP
from tests.integration.serve.conftest import Serving

IMAGE = "127.0.0.1:5000/vllm:1"
UNIT = "lab-registry"
FOLDER = "/var/tmp/registry"
PULLED = {"engine_image": IMAGE, "engine_image_archive": ""}


def records() -> set[Path]:
    """What is recorded beside the inventories of the lab."""
    return {
        path
        for folder in ("inventories/lab_container", ".lab/*")
        for path in TOP.glob(f"{folder}/.sparkthor-lock.json")
    }


@pytest.fixture
def registry(serving: Serving) -> Iterator[None]:
    """On the head's loopback address, with the image that the head has."""
    cluster = serving.cluster
    program = base64.b64encode((Path(__file__).parent / "registry.py").read_bytes()).decode()
    base = "docker container inspect sparkthor-ray --format '{{index .Config.Labels \"sparkthor.base\"}}'"
    cluster.run(
        cluster.head,
        f"mkdir -p {FOLDER} && echo {program} | base64 -d > {FOLDER}/registry.py && "
        f"docker save --output {FOLDER}/image.tar $({base}) && "
        f"systemd-run --quiet --unit={UNIT} python3 {FOLDER}/registry.py {FOLDER}/image.tar {FOLDER}/image 5000",
        timeout=600,
    )
    begun = time.monotonic()
    while cluster.run(cluster.head, "curl -s http://127.0.0.1:5000/v2/", check=False) != "{}":
        assert time.monotonic() - begun < 300, cluster.run(cluster.head, f"journalctl -u {UNIT} -n 20 --no-pager")
        time.sleep(1)
    before = records()
    try:
        yield
    finally:
        cluster.run(cluster.head, f"systemctl stop {UNIT}; rm -rf {FOLDER}", check=False)
        for path in records() - before:
            path.unlink()


def test_an_image_is_pulled_by_one_host_and_passed_on(serving: Serving, registry: None) -> None:
    cluster = serving.cluster
    outcome = serving.site(whole=True, **PULLED)
    assert f"{cluster.head}: {IMAGE}: is being written down for the other hosts" in outcome.output
    images = {host: json.loads(cluster.run(host, f"docker image inspect {IMAGE}"))[0] for host in cluster.hosts}
    assert {image["Config"]["Labels"]["lab.registry"] for image in images.values()} == {"1"}
    assert len({image["Id"] for image in images.values()}) == 1
    for host in cluster.hosts:
        # what was written for the others is gone
        assert cluster.run(host, "ls /opt/sparkthor/images/archive", check=False) == "", host
    serving.assert_answers_as_one_host()
    # the registry is asked no more: it is not there
    cluster.run(cluster.head, f"systemctl stop {UNIT}")
    assert set(serving.site(whole=True, **PULLED).changed.values()) == {0}
