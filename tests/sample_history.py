"""A made-up history of nights, marked synthetic: python tests/sample_history.py DIR [--nights N].

Nothing in it was measured. Per cell the ratio to cuBLAS has a level, a noise of its own of about
1 %, and a shift of 0.5 % that all cells of a night share; planted are a loss of 6 % in one cell, a
change of config, of driver and of fbtriton, failures, a night without data, and cells not measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

SHAPES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 512),
    (16384, 11264, 5632),
    (1024, 12800, 2304),
    (768, 992, 8192),
    (129, 4096, 4096),
)
BACKENDS = ("tlx_persistent", "tlx_clc", "triton_tutorial_matmul")
DTYPES = ("fp16", "bf16")
URL = "https://github.com/example/tlx_clc_plugin/commit/"


def night(
    index: int,
    *,
    seed: int = 0,
    shapes: tuple[tuple[int, int, int], ...] = SHAPES,
    backends: tuple[str, ...] = BACKENDS,
    dtypes: tuple[str, ...] = DTYPES,
    start: datetime = datetime(2026, 10, 1, 2, tzinfo=timezone.utc),
    loss: tuple[int, str, float] | None = None,
) -> dict:
    """Night ``index`` of the history ``seed``, as the JSON of a night file (schema 1).

    ``loss`` is (night, part of a cell's id, share): from that night on these cells lose that much.
    """
    rng = random.Random(f"{seed} {index}")
    started = start + timedelta(days=index, seconds=rng.randrange(60))
    sha = hashlib.sha1(f"{seed} {index}".encode()).hexdigest()
    shift = rng.gauss(0, 0.005)
    cells = [
        _cell((m, n, k), dtype, backend, index, rng, shift, seed, loss)
        for m, n, k in shapes
        for dtype in dtypes
        for backend in backends
    ]
    words = {cell["id"]: {"word": cell["status"], "why": cell["reason"]} for cell in cells}
    clock = rng.gauss(1500, 12)
    return {
        "kind": "tlx_clc_plugin.night",
        "schema": 1,
        "synthetic": True,
        "started": _iso(started),
        "finished": _iso(started + timedelta(minutes=48)),
        "commit": {
            "sha": sha,
            "time": _iso(started - timedelta(hours=9)),
            "subject": f"Change number {index}",
            "url": URL + sha,
        },
        "runner": {"name": "b200-1", "lane": "gpu", "harness": "tritonbench 13ecc78"},
        "gpu": {
            "name": "NVIDIA B200",
            "capability": "10.0",
            "sms": 148,
            "driver": "580.95.05" if index < 40 else "590.12.01",
            "power_limit_w": 1000,
            "memory_gib": 178.4,
        },
        "conditions": {
            "sm_clock_mhz": {
                "min": round(clock - 90),
                "median": round(clock),
                "max": round(clock + 200),
            },
            "power_w": {"min": 310, "median": 940, "max": 1000},
            "temperature_c": {"min": 41, "median": 63, "max": 68},
            "throttle_reasons": ["sw_power_cap"] if rng.random() < 0.7 else [],
        },
        "versions": {
            "python": "3.11.9",
            "torch": "2.13.0",
            "fbtriton": "3.7.3" if index < 25 else "3.7.4",
            "tlx_clc_plugin": "0.1.0",
            "cuda": "13.0",
        },
        "seeds": {"inputs": 1000 + index},
        "steps": [
            {
                "name": name,
                "status": "ok",
                "reason": "",
                "seconds": round(rng.uniform(20, 900), 1),
                "command": f"ci/env {command}",
            }
            for name, command in (
                ("doctor", "tlx-clc doctor"),
                ("tests", "pytest"),
                ("benchmarks", "pytest --benchmark-only tests/benchmarks"),
            )
        ],
        "cells": cells,
        "verdict": {
            "status": "ok" if {cell["status"] for cell in cells} <= {"ok", "skipped"} else "fail",
            "cells": words,
        },
    }


def history(nights: int, **options) -> Iterator[dict]:
    """Nights 0 to ``nights`` - 1, without every 23rd, on which the machine was down."""
    return (night(index, **options) for index in range(nights) if index % 23 != 22)


def file_name(record: dict) -> str:
    """The name of a night's file: its start, commit and lane."""
    started = record["started"].replace("-", "").replace(":", "")
    return f"{started}-{record['commit']['sha'][:12]}-{record['runner']['lane']}.json"


def write(folder: Path, records: Iterator[dict]) -> list[Path]:
    """Write night files into ``folder``, made if need be; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for record in records:
        paths.append(folder / file_name(record))
        paths[-1].write_text(json.dumps(record, indent=1), encoding="utf-8")
    return paths


def _cell(shape, dtype, backend, index, rng, shift, seed, loss) -> dict:
    m, n, k = shape
    identity = f"gemm/{m}x{n}x{k}/{dtype}/tn/{backend}/eager"
    trait = random.Random(f"{seed} {identity}")
    level = trait.uniform(0.82, 1.04) - (0.12 if backend.startswith("triton") else 0)
    cublas = 2 * m * n * k / 1.2e15 * 1e6 + 6
    noise = trait.uniform(0.006, 0.012)
    if loss and index >= loss[0] and loss[1] in identity:
        level *= 1 - loss[2]
    config = "128x256x64 smem4 tmem2 group8"
    if trait.random() < 0.3 and index >= trait.randrange(10, 60):
        config, level = "256x128x64 smem4 tmem2 group8", level * 1.01
    status, reason, value = "ok", "", level * (1 + shift + rng.gauss(0, noise))
    if rng.random() < 0.002:
        status, reason, value = "error", "CUDA error: unspecified launch failure", None
    elif m == 768 and backend == "tlx_clc":
        status, reason, value = "skipped", "no split-K in this schedule", None
    cublas *= 1 + rng.gauss(0, 0.006)
    figures = {"cublas_us": round(cublas, 3)}
    if value is not None:
        latency = cublas / value
        figures |= {
            "latency_us": round(latency, 3),
            "tflops": round(2 * m * n * k / latency / 1e6, 1),
            "relative_error": round(rng.uniform(0.005, 0.012), 5),
        }
    return {
        "id": identity,
        "op": "gemm",
        "shape": [m, n, k],
        "dtype": dtype,
        "layout": "tn",
        "backend": backend,
        "mode": "eager",
        "metric": "ratio_to_cublas",
        "better": "higher",
        "status": status,
        "reason": reason,
        "value": None if value is None else round(value, 5),
        "low": None if value is None else round(value * (1 - 1.5 * noise), 5),
        "high": None if value is None else round(value * (1 + 1.5 * noise), 5),
        "figures": figures,
        "config": config,
        "repro": f"ci/env tritonbench --op gemm --only aten_matmul,{backend} "
        f"--m {m} --n {n} --k {k} --precision {dtype} --layout tn --metrics latency,speedup",
    }


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a made-up history, marked synthetic.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    planted = (options.nights // 2, "4096x4096x4096/fp16/tn/tlx_clc", 0.06)
    paths = write(
        options.folder,
        history(options.nights, seed=options.seed, loss=planted),
    )
    print(f"{len(paths)} synthetic nights in {options.folder}")
