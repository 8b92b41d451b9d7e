# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory 2spark on simulated hosts with docker, whose worker lies, and a controller as one installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.integration.border.conftest import TOP
from tests.integration.border_lab.conftest import Edge, lab_of, set_up

NAME = "border-serve"
#: tools/test.sh runs scenarios beside one another
SUBNET = os.environ.get("SPARKLAB_SUBNET", "10.79.58.0/24")


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    subprocess.run([sys.executable, "lab/engine/image.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    home = tmp_path_factory.mktemp("home")
    inventory = shutil.copytree(TOP / "inventories/2spark", home / "cluster")
    with lab_of(NAME, inventory, subnet=SUBNET, suite="trixie", disk="20G", layers=["docker"]) as lab:
        # of two files of one folder the later one says last where a host is; the secrets lie where a user has them
        told = yaml.safe_load((lab.folder / "inventory.yml").read_text(encoding="utf-8"))
        del told["all"]["vars"]["sparkthor_secrets_dir"]
        (inventory / "lab.yml").write_text(yaml.safe_dump(told), encoding="utf-8")
        made = Edge(lab, home, liar="spark-02", honest="spark-01")
        set_up(made)
        yield made
