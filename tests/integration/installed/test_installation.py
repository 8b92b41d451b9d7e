# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installation from the built collection, with every ansible-core that is supported; no hosts."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from .conftest import TOP, Controller, controller

CORES = re.findall(r"2\.\d+", re.search(r"SPARKTHOR_CORES:-([^}]*)}", (TOP / "tools" / "matrix.sh").read_text())[1])
PLAYBOOKS = sorted(path.stem for path in (TOP / "playbooks").glob("*.yml"))
EXAMPLES = sorted(path.name for path in (TOP / "examples").iterdir())


@pytest.fixture(scope="session", params=CORES)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, built: Path, commands: list[str]
) -> Controller:
    return controller(tmp_path_factory.mktemp(f"core-{request.param}"), request.param, built, commands)


def test_the_archive_holds_what_users_need_and_no_more(built: Path) -> None:
    with tarfile.open(built) as files:
        top = {name.split("/")[0] for name in files.getnames()}
    assert top == {
        *("CHANGELOG.rst", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "FILES.json", "LICENSE", "MANIFEST.json"),
        *("README.md", "SECURITY.md", "changelogs", "docs", "examples", "inventories", "meta", "playbooks", "plugins"),
        *("recipes", "requirements", "roles"),
    }


def test_every_playbook_is_found_by_its_full_name(installed: Controller) -> None:
    names = " ".join(f"sparkthor.cluster.{name}" for name in PLAYBOOKS)
    installed.succeed(f"ansible-playbook --syntax-check -i {installed.collection}/examples/home-pair {names}")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_planned_and_rendered(installed: Controller, example: str) -> None:
    installed.succeed(f"cp -r {installed.collection}/examples/{example} {example}")
    installed.succeed(f"ansible-playbook sparkthor.cluster.render -i {example} -e render_dir=rendered-{example}")
    hosts = sorted(path.name for path in (installed.home / f"rendered-{example}").iterdir() if path.is_dir())
    assert hosts[:2] == ["spark-01", "spark-02"]
    assert (installed.home / f"rendered-{example}/spark-01/etc/netplan/40-cx7.yaml").is_file()


def test_plugins_and_roles_are_documented(installed: Controller) -> None:
    listed = installed.succeed("ansible-doc --list sparkthor.cluster; ansible-doc -t role --list sparkthor.cluster")
    names = {word.rstrip(":") for word in listed.split()}
    assert {"sparkthor.cluster.ray_info", "sparkthor.cluster.vllm_serve"} <= names


def test_without_netaddr_one_sentence_says_what_to_install(installed: Controller) -> None:
    example = f"{installed.collection}/examples/home-pair"
    installed.succeed("pip uninstall --quiet --yes netaddr")
    try:
        done = installed.run(f"ansible-playbook sparkthor.cluster.site -i {example}")
    finally:
        installed.succeed("pip install --quiet netaddr")
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    assert "pip install netaddr" in " ".join(done.stdout.split())


def test_two_copies_of_the_collection_are_named(installed: Controller, built: Path) -> None:
    installed.succeed(f"ansible-galaxy collection install --force -p second {built}")
    done = installed.run(
        "ANSIBLE_COLLECTIONS_PATH=second:.ansible/collections "
        f"ansible-playbook sparkthor.cluster.render -i {installed.collection}/examples/home-pair -e render_dir=twice"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    said = " ".join(done.stdout.split())
    assert re.search(
        r"sparkthor\.cluster is installed 2 times: \S+/second/\S+ \(used\), \S+/\.ansible/\S+; remove", said
    )


def test_an_older_core_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, built: Path, commands: list[str]
) -> None:
    old = controller(tmp_path_factory.mktemp("core-2.18"), "2.18", built, commands)
    done = old.run(f"ansible-playbook sparkthor.cluster.site -i {old.collection}/examples/home-pair")
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    assert "needs ansible-core 2.19 or newer; this is 2.18" in " ".join(done.stdout.split())
