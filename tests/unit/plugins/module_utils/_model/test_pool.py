# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools worked out by hand after vLLM's rules."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.pool import (
    CHUNK,
    FULL,
    STATE,
    WINDOW,
    Cache,
    Request,
    make_pool,
)

ONE_BATCH = Request(in_flight=8192)
ROW = Cache(FULL, 2048)


def test_equal_layers_are_one_group() -> None:
    pool = make_pool([ROW] * 32, 16, ONE_BATCH)
    assert len(pool.groups) == 1
    assert pool.block_bytes(0) == 32 * 16 * 2048
    assert (pool.blocks(1), pool.blocks(16), pool.blocks(17)) == (1, 1, 2)
    assert pool.bytes(0, 32_768) == 32_768 * 32 * 2048


def test_an_index_beside_each_layer_shares_its_blocks() -> None:
    pool = make_pool([ROW, Cache(FULL, 132)] * 4, 64, ONE_BATCH)
    assert len(pool.groups) == 1
    assert pool.block_bytes(0) == 4 * 64 * (2048 + 132)


def test_a_window_holds_what_is_in_flight_and_a_block_more() -> None:
    # 12 full layers, 33 windows: groups of 12, 11, 11 and 11, all as large as the first
    pool = make_pool([ROW] * 12 + [Cache(WINDOW, 2048, window=512)] * 33, 16, ONE_BATCH)
    assert [len(group) for group in pool.groups] == [12, 11, 11, 11]
    assert pool.block_bytes(0) == 12 * 16 * 2048
    assert pool.blocks(32_768) == 2048 + 3 * (-(-(511 + 8192) // 16) + 1)
    # a chunk begins anew, so that it needs no block more
    chunks = make_pool([ROW] * 12 + [Cache(CHUNK, 2048, window=512)] * 36, 16, ONE_BATCH)
    assert chunks.blocks(32_768) == 2048 + 3 * ((512 + 8192) // 16)


def test_kinds_that_are_almost_as_frequent_are_padded_instead_of_cut() -> None:
    pool = make_pool([ROW] * 13 + [Cache(WINDOW, 2048, window=128)] * 12, 16, ONE_BATCH)
    assert [len(group) for group in pool.groups] == [13, 12]
    assert pool.block_bytes(0) == 13 * 16 * 2048


def test_a_state_takes_whole_blocks() -> None:
    # Qwen3.6-35B on one rank: blocks of 1056 tokens, 128 of them for 131,072 tokens without prefix caching
    state = Cache(STATE, 2_146_304)
    layers = [ROW] * 10 + [state] * 30
    plain = make_pool(layers, 1056, replace(ONE_BATCH, aligned_states=False))
    assert plain.block_bytes(0) == 10 * 1056 * 2048
    assert plain.blocks(131_072) == 125 + 3 * 1
    drafting = make_pool(layers, 1056, Request(8192, drafted=3))
    assert drafting.blocks(131_072) == 125 + 3 * (2 + 3)
    checkpoint = make_pool([ROW] * 10 + [replace(state, spare=1)] * 30, 1056, ONE_BATCH)
    assert checkpoint.blocks(131_072) == 125 + 3 * 3


def test_pages_of_another_size_get_larger_blocks_or_are_padded() -> None:
    # Gemma 4: a full layer's row is half a window's, so its block has twice the tokens
    pool = make_pool([ROW] * 5 + [Cache(WINDOW, 4096, window=1024)] * 25, 16, ONE_BATCH)
    assert {cache.block for cache in pool.groups[0]} == {32}
    odd = make_pool([Cache(FULL, 3000)] * 5 + [Cache(WINDOW, 4096, window=1024)] * 5, 16, ONE_BATCH)
    assert {cache.page for group in odd.groups for cache in group} == {16 * 4096}


def test_stages_share_groups_and_have_their_own_blocks() -> None:
    layers = [replace(ROW, stage=stage) for stage in (0, 0, 0, 1)]
    pool = make_pool(layers, 16, ONE_BATCH)
    assert (pool.block_bytes(0), pool.block_bytes(1)) == (3 * 16 * 2048, 16 * 2048)
    assert pool.longest(0, 10 * 3 * 16 * 2048, 1000) == 9 * 16
    assert pool.longest(2, 0, 1000) == 1000  # a stage without a cache sets no limit


def test_compressed_entries_are_packed_side_by_side() -> None:
    row = Cache(FULL, 584, per_entry=4, align=576)
    index = Cache(FULL, 132, per_entry=4, align=576)
    coarse = Cache(FULL, 584, per_entry=128, align=576)
    window = Cache(WINDOW, 584, window=128, block=64, align=576)
    pool = make_pool([window, row, index, window, coarse], 256, ONE_BATCH, packed=True)
    pages = {cache.page for group in pool.groups for cache in group}
    assert pages == {64 * 584 + 64, 64 * 132 + 192, 2 * 584 + 560}
    # a block has room for one window's page, so the two windows are groups of their own
    assert pool.blocks(256) == 1 + 2 * (256 // 64 + 1)


def test_nothing_cached_needs_nothing() -> None:
    pool = make_pool([], 16, ONE_BATCH)
    assert (pool.blocks(100), pool.block_bytes(0)) == (0, 0)
