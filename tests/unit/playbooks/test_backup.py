# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup holds the inventory and its secrets, opens with its password alone, and unpacks into a new inventory."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
BIN = Path(sys.executable).parent
KEY = "a-key-that-nobody-else-has"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    folder = tmp_path / "inventory"
    shutil.copytree(TOP / "inventories" / "2spark", folder, ignore=shutil.ignore_patterns(".*"))
    (tmp_path / "password").write_text("open sesame\n")
    return folder


def back_up(
    inventory: Path, *arguments: str, folder: Path = TOP, **variables: object
) -> subprocess.CompletedProcess[str]:
    given = {
        "backup_file": inventory.parent / "backup",
        "backup_password_file": inventory.parent / "password",
        **variables,
    }
    extra = [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
    command = [str(BIN / "ansible-playbook"), str(TOP / "playbooks/backup.yml"), "-i", str(inventory)]
    return subprocess.run([*command, *extra, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def unpacked(inventory: Path) -> dict[str, str]:
    """By name, the files of the backup."""
    shown = re.search(r"ansible-vault (decrypt .*) \| tar", (TOP / "docs/lifecycle.md").read_text())
    assert shown
    places = {"@FILE": f"@{inventory.parent / 'password'}", "BACKUP": str(inventory.parent / "backup")}
    words = re.sub("@FILE|BACKUP", lambda place: places[place[0]], shown[1]).split()
    opened = subprocess.run([str(BIN / "ansible-vault"), *words], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(opened.stdout)) as files:
        return {
            member.name.removeprefix("./"): files.extractfile(member).read().decode()  # type: ignore[union-attr]  # a file
            for member in files
            if member.isfile()
        }


def test_it_holds_inventory_and_secrets_and_shows_neither(inventory: Path) -> None:
    (inventory / ".secrets").mkdir()
    (inventory / ".secrets" / "api_key").write_text(KEY)
    # a limit to some hosts, such as a worker, is no reason to write nothing
    done = back_up(inventory, "--limit=spark-02")
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    archive = inventory.parent / "backup"
    assert archive.stat().st_mode & 0o777 == 0o600
    assert archive.read_bytes().startswith(b"$ANSIBLE_VAULT;")
    assert unpacked(inventory) == {
        "hosts.yml": (inventory / "hosts.yml").read_text(),
        "group_vars/cluster.yml": (inventory / "group_vars" / "cluster.yml").read_text(),
        ".secrets/api_key": KEY,
    }


def test_names_of_files_start_where_the_user_stands(inventory: Path) -> None:
    done = back_up(inventory, folder=inventory.parent, backup_file="backup", backup_password_file="password")
    assert done.returncode == 0, done.stdout + done.stderr
    # a terminal breaks the line where a name is long
    assert f"{inventory.parent}/backup:2files" in "".join(done.stdout.split())
    assert not (TOP / "playbooks/backup").exists()
    assert set(unpacked(inventory)) == {"hosts.yml", "group_vars/cluster.yml"}


def test_a_controller_with_passwords_of_its_own_uses_the_given_one(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inventory.parent / "other").write_text("not this one\n")
    with monkeypatch.context() as configured:
        configured.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(inventory.parent / "other"))
        configured.setenv("ANSIBLE_VAULT_IDENTITY_LIST", f"backup@{inventory.parent / 'other'}")
        done = back_up(inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hosts.yml" in unpacked(inventory)
    monkeypatch.setenv("ANSIBLE_VAULT_ID_MATCH", "true")
    assert "hosts.yml" in unpacked(inventory)


def test_secrets_that_lie_elsewhere_are_where_a_new_inventory_has_them(inventory: Path) -> None:
    (inventory.parent / "keys").mkdir()
    (inventory.parent / "keys" / "api_key").write_text(KEY)
    done = back_up(inventory, sparkthor_secrets_dir=inventory.parent / "keys")
    assert done.returncode == 0, done.stdout + done.stderr
    assert unpacked(inventory)[".secrets/api_key"] == KEY


def test_what_cannot_be_right_is_refused_and_nothing_is_written(inventory: Path) -> None:
    assert "is inside the inventory" in " ".join(back_up(inventory, backup_file=inventory / "b").stdout.split())
    assert "set backup_file" in " ".join(back_up(inventory, backup_password_file="absent").stdout.split())
    (inventory / ".model").write_bytes(bytes(2_000_000))
    assert "holds 2 MB, more than backup_largest_mb=1" in " ".join(
        back_up(inventory, backup_largest_mb=1).stdout.split()
    )
    assert not (inventory.parent / "backup").exists()
    assert not (inventory / "b").exists()
