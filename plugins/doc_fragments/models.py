# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # The models that a host is to have, and where.
    DOCUMENTATION = r"""
options:
  root:
    description: Folder of the store on the host, an absolute path. It and all in it belong to root; anybody may read.
    type: path
    default: /var/lib/sparkthor/models
  models:
    description: The models.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the model's folder in the store.
        type: str
        required: true
      source:
        description:
          - An absolute path, or a path that begins with C(.) or C(~), is a folder on the controller, or a file in GGUF
            there (of several parts the first one).
          - A URL is downloaded once by the controller with C(fsspec); see docs/model-store.md.
          - Anything else is an id on the Hugging Face hub, downloaded once by the controller with C(huggingface_hub).
        type: str
        required: true
      layout:
        description:
          - V(flat) gives plain files in a folder of the model's name.
          - V(hub) gives the hub's own layout (C(models--owner--name) with blobs and links), so that the store is a
            cache of the hub's client.
        type: str
        choices: [flat, hub]
        default: flat
      files:
        description: Files to copy, if not all of the folder.
        type: list
        elements: str
      pattern:
        description:
          - Which model in GGUF is meant, of a repository or folder that holds several, as a shell pattern of its file,
            such as C(*Q4_K_M*). Its parts and small files come along, and no other weights.
        type: str
      revision:
        description: Branch, tag or commit on the hub. The result names the commit.
        type: str
      manifest:
        description: Used by the controller's side of this module.
        type: list
        elements: list
        default: []
      links:
        description: Used by the controller's side of this module.
        type: list
        elements: list
        default: []
      commit:
        description: Used by the controller's side of this module.
        type: str
        default: ''
      folder:
        description: Used by the controller's side of this module, the folder of this revision.
        type: str
        default: ''
      revisions:
        description: Whether each content of the model gets a folder of its own, to which the name is a link.
        type: bool
        default: true
"""
