"""The Hopper kernels as far as no GPU is needed: what they are built from and divided into."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlx_clc_plugin.config import ARCH_SCHEDULES, GemmConfig, check_schedule, violations
from tlx_clc_plugin.heuristics import HOPPER_CONFIGS, hopper_model, select_config
from tlx_clc_plugin.kernels import compile_kernel
from tlx_clc_plugin.offline import sass_opcodes
from tlx_clc_plugin.planning import divide_work

SCHEDULES = ARCH_SCHEDULES["hopper"]


@pytest.mark.parametrize("seed", range(5))
def test_shared_memory_equals_the_compilers_and_nothing_spills(seed):
    rng, done = random.Random(seed), 0
    while done < 4:
        config = GemmConfig(
            block_size_m=rng.choice((128, 256)),
            block_size_n=rng.choice((32, 64, 128, 256)),
            block_size_k=rng.choice((32, 64, 128)),
            num_smem_buffers=rng.randint(2, 8),
            epilogue_subtile=rng.choice((1, 2, 4, 8)),
            split_k=rng.choice((1, 4)),
        )
        schedule, bias = rng.choice(SCHEDULES), rng.random() < 0.5
        if violations(config, schedule, bias=bias, arch="hopper"):
            continue
        kernel = compile_kernel(
            schedule,
            config,
            bias=bias,
            a_row_major=rng.random() < 0.5,
            b_row_major=rng.random() < 0.5,
            arch="hopper",
        )
        expected = config.smem_bytes(schedule, bias=bias, arch="hopper")
        assert kernel.metadata.shared == expected, (config, schedule, bias)
        sass = sass_opcodes(kernel.asm["sass"])
        assert not [op for op in sass if re.match(r"(LDL|STL)\b", op)], config
        for needed in ("HGMMA", "UTMALDG", "UTMASTG", "SYNCS"):
            assert any(op.startswith(needed) for op in sass), (needed, config)
        assert any(op.startswith("ATOMG") for op in sass) == (schedule == "dynamic")
        done += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_size_m": 64}, "block_size_m must be 128 or 256"),
        ({"block_size_m": 256}, "at most 128 * 256"),
        ({"block_size_n": 32, "epilogue_subtile": 4}, "at least 16, got 32 / 4"),
        ({"num_smem_buffers": 5}, "shared memory has 232448 bytes"),
    ],
)
def test_hopper_rules(change, words):
    config = GemmConfig(**({"num_smem_buffers": 2} | change))
    broken = violations(config, "persistent", bias=False, arch="hopper")
    assert len(broken) == 1 and words in broken[0], broken


def test_schedules_belong_to_architectures():
    with pytest.raises(ValueError, match="one of persistent, dynamic on Hopper, got 'clc'"):
        check_schedule("clc", "hopper")
    with pytest.raises(ValueError, match="one of persistent, clc on Blackwell, got 'dynamic'"):
        check_schedule("dynamic", "blackwell")
    assert violations(GemmConfig(split_k=2), "clc", bias=False) == (
        "split_k must be 1 on Blackwell, got 2",
    )


extents = st.one_of(st.integers(1, 300), st.integers(1, 100_000))


@settings(max_examples=300, deadline=None)
@given(extents, extents, extents, st.sampled_from(SCHEDULES), st.booleans())
def test_heuristic_is_always_valid(M, N, K, schedule, bias):
    config = select_config(M, N, K, 132, schedule=schedule, bias=bias, arch="hopper")
    assert violations(config, schedule, bias=bias, arch="hopper") == ()


def test_the_model_knows_every_tile_and_fits_what_was_timed():
    tiles = hopper_model()["tiles"]
    assert len(tiles) == len(HOPPER_CONFIGS)
    for tile in tiles:
        assert min(tile["launch_us"], tile["edge_us"], tile["block_us"]) > 0
        assert tile["error"] < 0.1


@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 3000),
    st.integers(1, 200),
    st.integers(1, 150),
    st.sampled_from(SCHEDULES),
    st.integers(1, 40),
)
def test_work_items_cover_every_k_block_of_every_tile_once(tiles, k_tiles, sms, schedule, split):
    ctas, full_tiles, split_k = divide_work(tiles, k_tiles, sms, schedule, split)
    items = [(tile, 0, k_tiles) for tile in range(full_tiles)]
    for tile in range(full_tiles, tiles):
        # As the kernel cuts it.
        cuts = [part * k_tiles // split_k for part in range(split_k + 1)]
        items += [(tile, *cut) for cut in zip(cuts, cuts[1:], strict=False)]
    assert all(begin < end for _, begin, end in items)
    assert sum(end - begin for _, begin, end in items) == tiles * k_tiles
    assert 1 <= ctas <= min(sms, len(items))
    if split_k > 1:
        assert full_tiles % sms == 0
