# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_secrets


def test_a_kept_secret_is_private_from_its_first_moment(tmp_path):
    path = tmp_path / "secrets" / "api_key"
    value = cluster_secrets.new_secret()
    cluster_secrets.keep(str(path), value)
    assert cluster_secrets.read_kept(str(path)) == value
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["api_key"]


def test_two_secrets_differ_and_are_long():
    first, second = cluster_secrets.new_secret(), cluster_secrets.new_secret()
    assert first != second
    assert len(first) >= 32


def test_no_file_is_no_secret(tmp_path):
    assert cluster_secrets.read_kept(str(tmp_path / "api_key")) is None


@pytest.mark.parametrize(("text", "mode", "words"), [("", 0o600, "0 characters"), ("x" * 40, 0o644, "chmod 0600")])
def test_an_empty_or_readable_file_is_refused_without_showing_it(tmp_path, text, mode, words):
    path = tmp_path / "api_key"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(AnsibleActionFail, match=words) as caught:
        cluster_secrets.read_kept(str(path))
    assert not text or text not in str(caught.value)
