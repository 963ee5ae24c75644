"""A tritonbench plugin, ``--plugin same_inputs.register``: inputs of the embedded runner."""

from tlx_clc_plugin.bench.inputs import Shape, make

SEED = 7


def register() -> None:
    from tritonbench.operators.gemm import Operator

    def get_input_iter(operator):
        for shape in operator.shapes:
            yield make(
                Shape(*shape[:3]),
                precision=operator.tb_args.precision,
                layout=operator.layout,
                bias=False,
                device="cpu",
                seed=SEED,
            )

    Operator.get_input_iter = get_input_iter
