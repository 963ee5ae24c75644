"""GemmConfig's figures against the compiler's, its rules, and the heuristic's choices."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlx_clc_plugin.config import ARCH_SCHEDULES, GemmConfig, check_config, violations
from tlx_clc_plugin.heuristics import modelled_cycles, select_config
from tlx_clc_plugin.kernels import compile_kernel


def random_valid_configs(count: int, seed: int) -> list[tuple[GemmConfig, str, bool]]:
    rng, found = random.Random(seed), []
    while len(found) < count:
        config = GemmConfig(
            block_size_n=rng.choice((32, 64, 128, 256)),
            block_size_k=rng.choice((16, 32, 64, 128, 256)),
            num_smem_buffers=rng.randint(1, 8),
            num_tmem_buffers=rng.randint(1, 4),
            num_clc_stages=rng.randint(1, 4),
            epilogue_subtile=rng.choice((1, 2, 4, 8)),
        )
        schedule, bias = rng.choice(ARCH_SCHEDULES["blackwell"]), rng.random() < 0.5
        if not violations(config, schedule, bias=bias):
            found.append((config, schedule, bias))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_memory_figures_equal_the_compilers(seed):
    for config, schedule, bias in random_valid_configs(5, seed):
        metadata = compile_kernel(
            schedule, config, bias=bias, a_row_major=seed % 2 == 0, b_row_major=seed % 4 < 2
        ).metadata
        assert config.smem_bytes(schedule, bias=bias) == metadata.shared, (config, schedule, bias)
        assert config.tmem_columns() == metadata.tmem_size, config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_size_m": 64}, "block_size_m must be 128"),
        ({"block_size_m": 256, "num_smem_buffers": 1}, "block_size_m must be 128"),
        (
            {
                "block_size_n": 512,
                "num_smem_buffers": 1,
                "num_tmem_buffers": 1,
                "epilogue_subtile": 8,
            },
            "block_size_n must",
        ),
        ({"block_size_n": 96, "epilogue_subtile": 1}, "block_size_n must"),
        ({"block_size_k": 8}, "block_size_k must"),
        ({"epilogue_subtile": 3, "num_smem_buffers": 1}, "epilogue_subtile must"),
        ({"epilogue_subtile": 1, "num_smem_buffers": 1}, "block_size_n / epilogue_subtile must"),
        ({"block_size_n": 32, "epilogue_subtile": 8}, "block_size_n / epilogue_subtile must"),
        ({"num_tmem_buffers": 3}, "3 * 256 = 768"),
        ({"num_smem_buffers": 5}, "shared memory has 232448 bytes"),
        ({"num_clc_stages": 0}, "num_clc_stages must be a positive int, got 0"),
        ({"group_size_m": 1025}, "group_size_m must be at most 1024, got 1025"),
        ({"group_size_m": -1}, "group_size_m must be a positive int, got -1"),
        ({"block_size_k": 64.0}, "block_size_k must be a positive int, got 64.0"),
        ({"num_smem_buffers": True}, "num_smem_buffers must be a positive int, got True"),
    ],
)
def test_each_rule_names_what_breaks_it(change, words):
    broken = violations(dataclasses.replace(GemmConfig(), **change), "clc", bias=True)
    assert len(broken) == 1 and words in broken[0], broken


def test_all_violated_rules_are_listed():
    config = GemmConfig(
        block_size_m=64, block_size_k=48, num_smem_buffers=9, num_tmem_buffers=4, epilogue_subtile=5
    )
    with pytest.raises(ValueError) as error:
        check_config(config, "persistent", bias=False)
    for words in ("block_size_m", "block_size_k", "epilogue_subtile", "512 columns", "232448"):
        assert words in str(error.value)


def test_schedule_and_type_are_checked():
    with pytest.raises(
        ValueError, match="schedule must be one of persistent, clc, dynamic, got 'stream'"
    ):
        violations(GemmConfig(), "stream", bias=False)
    with pytest.raises(TypeError, match="config must be a GemmConfig, got dict"):
        check_config({}, "clc", bias=False)


extents = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 512))


@settings(max_examples=500, deadline=None)
@given(
    extents,
    extents,
    extents,
    st.integers(1, 200),
    st.sampled_from(ARCH_SCHEDULES["blackwell"]),
    st.booleans(),
)
def test_heuristic_is_always_valid_and_cheapest(M, N, K, num_sms, schedule, bias):
    config = select_config(M, N, K, num_sms, schedule=schedule, bias=bias)
    assert violations(config, schedule, bias=bias) == ()
    costs = [modelled_cycles(M, N, K, num_sms, n) for n in (32, 64, 128, 256)]
    assert modelled_cycles(M, N, K, num_sms, config.block_size_n) == min(costs)


def test_heuristic_trades_tile_width_against_idle_sms():
    assert select_config(8192, 8192, 8192, 148, schedule="clc", bias=False).block_size_n == 256
    # One row of 128-wide tiles would leave 144 of 148 SMs without work.
    assert select_config(128, 512, 8192, 148, schedule="clc", bias=False).block_size_n == 32
