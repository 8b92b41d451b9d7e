# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the host layer everywhere, on a ring of four: a second run, full frames on each cable, a reboot."""

from tests.integration.host_layer.test_converged import (
    test_all_of_it_holds_after_a_reboot_of_all_hosts,
    test_check_mode_predicted_what_converge_changed,
    test_each_link_has_a_subnet_of_its_own,
    test_every_neighbour_answers_on_each_half_with_full_frames,
    test_second_run_changed_nothing,
)
from tests.integration.host_layer.test_roles import (
    test_each_host_has_its_own_environment_and_all_one_transport,
    test_management_stays_out_of_the_fabric,
)

__all__ = [
    "test_all_of_it_holds_after_a_reboot_of_all_hosts",
    "test_check_mode_predicted_what_converge_changed",
    "test_each_host_has_its_own_environment_and_all_one_transport",
    "test_each_link_has_a_subnet_of_its_own",
    "test_every_neighbour_answers_on_each_half_with_full_frames",
    "test_management_stays_out_of_the_fabric",
    "test_second_run_changed_nothing",
]
