#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_conf
short_description: Edit NCCL's system-wide configuration key by key, and report what overrides it
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Sets and removes single keys of C(/etc/nccl.conf). All other lines and comments stay as they are. The file as it was
    before the first edit is kept as C(<path>.sparkthor-orig).
  - NCCL takes a variable from the process environment first, then from the file named by E(NCCL_CONF_FILE) (NCCL 2.23
    and later) or else from C(~/.nccl.conf), then from C(/etc/nccl.conf). If a file has several lines for a key, the
    first one counts.
  - A comment is a line with C(#) in its first column. Blanks are never trimmed, so C( NCCL_X=1) and C(NCCL_X =1) set
    nothing that NCCL knows; such lines are kept and returned in RV(sources[].ineffective).
  - A container reads its own files. O(images) reports what images that are already on the host carry.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  path:
    description: The system-wide file.
    type: path
    default: /etc/nccl.conf
  present:
    description: Keys that must have a value.
    type: dict
    default: {}
  absent:
    description: Keys that must not be set in the file.
    type: list
    elements: str
    default: []
  restore:
    description:
      - Restore the keys of O(absent) as they were before the first edit. Lines that others have added since stay.
      - A file with nothing left in it is removed.
    type: bool
    default: false
  planned:
    description:
      - The environment of the engine. Settings in any file that differ from it are returned. They do not affect the
        engine, but they affect programs that are started without this environment.
    type: dict
    default: {}
  users:
    description: Users whose C(~/.nccl.conf) is reported. Users that the host does not have are skipped.
    type: list
    elements: str
    default: [root, sparkthor]
  images:
    description:
      - Container images to report on, if they are on the host. Nothing in an image is run and none is pulled; a
        container is created from it and removed again, also in check mode.
    type: list
    elements: str
    default: []
  container_cli:
    description: Program that reads the images.
    type: str
    choices: [docker, podman]
    default: docker
"""

EXAMPLES = r"""
- name: RDMA must not be switched off
  sparkthor.cluster.nccl_conf:
    absent: [NCCL_IB_DISABLE]

- name: One transport on all ranks of a cluster with hosts that lack RDMA
  sparkthor.cluster.nccl_conf:
    present:
      NCCL_IB_DISABLE: "1"

- name: What does the engine's image carry?
  sparkthor.cluster.nccl_conf:
    images: ["nvcr.io/nvidia/vllm:26.10-py3"]
  register: nccl
"""

RETURN = r"""
changed_paths:
  description: The file, if it was changed.
  returned: always
  type: list
  elements: str
backup:
  description: Where the file as it was before the first edit is kept, if it is.
  returned: always
  type: str
sources:
  description: Every place NCCL may take settings from on this host, highest rank first.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Path, with the image's name before it where it is inside an image.
      type: str
      returned: always
    rank:
      description: C(environment), C(NCCL_CONF_FILE), C(home), C(system) or C(image).
      type: str
      returned: always
    exists:
      description: Whether it is there.
      type: bool
      returned: always
    settings:
      description: What NCCL takes from it.
      type: dict
      returned: always
    differs:
      description: Settings among them that differ from the planned environment.
      type: dict
      returned: always
    ineffective:
      description: Lines that look like settings and are none, with the reason.
      type: list
      elements: dict
      returned: always
  sample:
    - name: /etc/nccl.conf
      rank: system
      exists: true
      settings: {NCCL_IB_DISABLE: "1"}
      differs: {NCCL_IB_DISABLE: {value: "1", planned: "0"}}
      ineffective: []
"""

import json
import os
import pwd
import stat
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import (
    BACKUP_SUFFIX,
    keep_original,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import MARKER, has_marker
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_plain, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.nccl import (
    NcclError,
    NcclSource,
    edit,
    taken_back,
)

#: bytes read of a file that is not root's own
LIMIT = 1_000_000
ENVIRONMENT_FILES = ("/etc/environment", environment_file.FABRIC)


def read(path: str) -> bytes | None:
    try:
        return read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_theirs(path: str) -> bytes | None:
    """A file in a user's home; None where there is none, or a link of his, which may lead anywhere."""
    try:
        return read_plain(path, LIMIT)
    except OSError:
        return None


def environment_sources() -> list[NcclSource]:
    """Files that end up in process environments; an NCCL_CONF_FILE named there outranks the users' own files."""
    sources, named = [], []
    for path in ENVIRONMENT_FILES:
        lines = [line.strip() for line in (read(path) or b"").decode("utf-8", "replace").splitlines()]
        lines = [line[7:] if line.startswith("export ") else line for line in lines]
        pairs = [line.partition("=")[::2] for line in lines if line.startswith("NCCL_") and "=" in line]
        if pairs:
            text = "".join(f"{key}={value.strip(chr(34) + chr(39))}\n" for key, value in pairs)
            sources.append(NcclSource(path, "environment", text.encode()))
        named += [value.strip("\"'") for key, value in pairs if key == "NCCL_CONF_FILE"]
    return sources + [NcclSource(path, "NCCL_CONF_FILE", read(path)) for path in named if path.startswith("/")]


def home_sources(users: list[str]) -> list[NcclSource]:
    homes = []
    for user in users:
        try:
            homes.append(pwd.getpwnam(user).pw_dir)
        except KeyError:
            continue
    return [
        NcclSource(f"{home}/.nccl.conf", "home", read_theirs(f"{home}/.nccl.conf")) for home in dict.fromkeys(homes)
    ]


def image_sources(cli: str, image: str, path: str) -> list[NcclSource]:
    """Environment and files of an image on this host; nothing in it is run."""
    code, out, _err = run_limited([cli, "image", "inspect", "--format", "{{json .Config.Env}}", image], 20)
    if code != 0:
        return [NcclSource(f"{image}:{path}", "image", None)]
    pairs = [item for item in json.loads(out) or [] if item.startswith("NCCL_")]
    sources = [NcclSource(f"{image} (environment)", "image", "".join(f"{item}\n" for item in pairs).encode())]
    code, out, _err = run_limited([cli, "create", "--network", "none", image, "true"], 60)
    if code != 0:
        return sources
    container = out.strip().splitlines()[-1]
    try:
        for inside in (path, "/root/.nccl.conf"):
            sources.append(NcclSource(f"{image}:{inside}", "image", image_file(cli, container, inside)))
    finally:
        run_limited([cli, "rm", "--force", "--volumes", container], 60)
    return sources


def image_file(cli: str, container: str, path: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "copy")
        # an image of a few bytes may have a file that fills this host's disk
        code, _out, _err = run_limited(["prlimit", f"--fsize={LIMIT}", cli, "cp", f"{container}:{path}", target], 60)
        # the tool keeps a link as a link: what it names in the image is another file here
        return read_plain(target, LIMIT) if code == 0 and stat.S_ISREG(os.lstat(target).st_mode) else None


def apply(path: str, before: bytes | None, after: bytes) -> None:
    """Write, keeping what stood there before our first edit."""
    uid, gid, mode = 0, 0, 0o644
    if before is not None:
        info = os.stat(path)
        uid, gid, mode = info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)
        if not has_marker(before):
            keep_original(path)
    write_atomic(path, after, uid, gid, mode)


def restore(path: str, before: bytes | None, after: bytes | None, kept: bytes | None) -> None:
    """Leave ``after`` there, and nothing of ours beside it."""
    if kept is not None and after == kept:
        os.replace(path + BACKUP_SUFFIX, path)
        return
    if after is None:
        os.unlink(path)
    elif after != before:
        info = os.stat(path)
        write_atomic(path, after, info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))
    if kept is not None:
        os.unlink(path + BACKUP_SUFFIX)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/nccl.conf"},
            "present": {"type": "dict", "default": {}},
            "absent": {"type": "list", "elements": "str", "default": []},
            "restore": {"type": "bool", "default": False},
            "planned": {"type": "dict", "default": {}},
            "users": {"type": "list", "elements": "str", "default": ["root", "sparkthor"]},
            "images": {"type": "list", "elements": "str", "default": []},
            "container_cli": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
        },
        mutually_exclusive=[("restore", "present")],
        supports_check_mode=True,
    )
    # Through a link, so that the backup lies beside what is really edited
    path = os.path.realpath(module.params["path"])
    planned = {str(key): str(value) for key, value in module.params["planned"].items()}
    present = {str(key): str(value) for key, value in module.params["present"].items()}
    try:
        before = read(path)
        if module.params["restore"]:
            kept = read(path + BACKUP_SUFFIX)
            change = kept is not None or (before is not None and has_marker(before))
            after = before
            if change:
                after = kept if before is None else taken_back(before, kept, module.params["absent"], f"# {MARKER}")
        else:
            after = edit(before or b"", present, module.params["absent"], header=f"# {MARKER}")
            change = after != (before or b"")
        if change and not module.check_mode:
            if module.params["restore"]:
                restore(path, before, after, kept)
            else:
                apply(path, before, after or b"")
        sources = environment_sources() + home_sources(module.params["users"])
        sources.append(NcclSource(path, "system", after if change else before))
        for image in module.params["images"]:
            sources += image_sources(module.params["container_cli"], image, path)
    except NcclError as error:
        module.fail_json(msg=f"{path}: {error}")
    except OSError as error:
        module.fail_json(msg=f"{error.filename or path}: {error.strerror}")
    result: dict[str, Any] = {
        "changed": change,
        "changed_paths": [path] if change else [],
        "backup": path + BACKUP_SUFFIX if os.path.lexists(path + BACKUP_SUFFIX) else "",
        "sources": [source.report(planned) for source in sources],
        "diff": [],
    }
    if change:
        texts = [(content or b"").decode("utf-8", "replace") for content in (before, after)]
        result["diff"] = [{"before_header": path, "after_header": path, "before": texts[0], "after": texts[1]}]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
