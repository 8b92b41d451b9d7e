# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # What the engine is installed from, as an environment or into an image.
    DOCUMENTATION = r"""
options:
  requirements:
    description:
      - File on the controller with the lock, each line C(name==version --hash=sha256:...), with the SHA-256 of every
        wheel that may be installed. It must pin ray and uv, and the engine too unless an image brings it.
    type: str
    required: true
  wheel_dir:
    description:
      - Folder on the controller with the wheels. The default is one per target, C(wheels/<python>-<machine>) under
        C($XDG_CACHE_HOME/sparkthor).
    type: str
  download:
    description: Whether wheels that are missing on the controller are fetched there with C(pip download).
    type: bool
    default: true
  ray_version:
    description: Version of Ray that the lock must pin or the image must have, checked when given.
    type: str
  engine_version:
    description: Version of the engine that the lock must pin or the image must have, checked when given.
    type: str
"""

    # What an engine is made of that is no Python package.
    PROGRAMS = r"""
options:
  engine:
    description: Which engine it is, by its name in C(serving_engine).
    type: str
    default: ''
    version_added: 0.2.0
  programs:
    description:
      - Folder on the controller with the programs of an engine that is no Python package (C(llama_cpp)). They are made
        into one wheel, and of O(requirements) uv alone is installed beside it. Given with another O(engine), they come
        beside all of O(requirements), for a group on demand.
    type: str
    default: ''
    version_added: 0.2.0
"""

    # How the engine comes to a host.
    INSTALLED = r"""
options:
  keep:
    description:
      - How many more engines stay on the host, the newest ones, beside those of what serves and of what served before.
        One that something still runs from stays in any case, and an image that was not brought by this module.
    type: int
    default: 1
  calls:
    description:
      - What the models that are served call of the engine's libraries beside what every model does. A library that is
        called must have kernels for the host's GPU; others that lack them are named in a warning.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  activate:
    description: Whether the engine becomes the one in use. If not, it lies beside that one, and RV(command) runs it.
    type: bool
    default: true
  deliver:
    description:
      - V(direct) sends wheels and archive to the host over the connection of the task.
      - V(fabric) sends none of the environment's wheels and no archive, and pulls no image. Where they are missing it
        returns what the fan-out (M(sparkthor.cluster.model_fanout)) asks for, or that an image is lacking, and has to
        be called again once that has been brought.
    type: str
    choices: [direct, fabric]
    default: direct
  timeout:
    description: Seconds that an installation, a pull, the loading of an archive or the building of an image may take.
    type: int
    default: 3600
  target:
    description: Used by the controller's side of this module.
    type: dict
    default: {}
"""
