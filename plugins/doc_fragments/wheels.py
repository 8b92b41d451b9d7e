# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # For what takes the engine's wheels from a folder of the controller.
    DOCUMENTATION = r"""
options:
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
    description: Version that the lock must pin for ray, checked when given.
    type: str
  vllm_version:
    description: Version that the lock must pin for vllm, checked when given.
    type: str
"""

    # What the controller's side of such a module tells the host's.
    RECEIVE = r"""
options:
  target:
    description: Used by the controller's side of this module.
    type: dict
    default: {}
  parts:
    description: Used by the controller's side of this module.
    type: list
    elements: dict
    default: []
"""
