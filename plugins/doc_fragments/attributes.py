# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # What holds for every module of this collection. Of two fragments the first one named wins, and the module's own
    # words win over both, so a module only says what is special about it.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
"""

    # Reads, computes or measures.
    READ_ONLY = r"""
options: {}
attributes:
  diff_mode:
    support: none
    details: Nothing is ever changed.
"""

    # Reads the hosts, and writes files on the controller.
    CONTROLLER_FILES = r"""
options: {}
attributes:
  diff_mode:
    support: none
    details: Nothing on any host is changed.
"""

    # Changes something that no diff shows; the module says why.
    NO_DIFF = r"""
options: {}
attributes:
  diff_mode:
    support: none
"""

    # Changes something and shows what.
    DIFF = r"""
options: {}
attributes:
  diff_mode:
    support: full
"""

    # A task in which the controller has a part that a person should know of.
    ACTION = r"""
options: {}
attributes:
  action:
    description: Has an action plugin on the controller, which takes a part of the work.
    support: full
"""
