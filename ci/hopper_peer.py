"""fbtriton's own Hopper GEMM (tutorial hopper_gemm_ws), with the whole of its autotuning.

Its 288 configs take minutes to compile one after another, so :func:`compile_all` fills Triton's
cache from several processes first; the autotuner then finds them there, and times them as ever.
"""

import concurrent.futures
import importlib.util
import itertools
import multiprocessing
import os
from pathlib import Path

import torch
import triton.language.extra.tlx as tlx
from triton.tools.tensor_descriptor import TensorDescriptor

NAME = "hopper_gemm_ws"


def tutorial():
    """The module, from the installed fbtriton."""
    path = Path(tlx.__file__).parent / "tutorials" / f"{NAME}.py"
    spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_all(layouts: list[tuple[bool, bool]]) -> int:
    """Compile every config for inputs that are (a row-major, b row-major); how many succeeded."""
    workers = max(1, (os.cpu_count() or 2) - 1)
    jobs = list(itertools.product(range(len(tutorial().get_autotune_configs())), layouts))
    shares = [jobs[i::workers] for i in range(workers)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        return sum(pool.map(_compile, shares))


def _compile(jobs: list) -> int:
    module, done = tutorial(), 0
    configs = module.get_autotune_configs()
    for index, (a_row_major, b_row_major) in jobs:
        config = configs[index]
        kernel = module.matmul_kernel_tlx_ws.fn
        x = torch.empty(512, 512, dtype=torch.float16, device="cuda")
        names = "a_desc", "b_desc", "c_desc"
        arguments = {name: TensorDescriptor(x, x.shape, x.stride(), [1, 1]) for name in names}
        arguments |= {"A_ROW_MAJOR": a_row_major, "B_ROW_MAJOR": b_row_major}
        arguments |= {"M": 512, "N": 512, "K": 512, **config.all_kwargs()}
        config.pre_hook(arguments)
        try:
            kernel.warmup(**arguments, grid=(1,))
            done += 1
        except Exception:  # more shared memory than there is: the autotuner leaves it out too
            pass
    return done
