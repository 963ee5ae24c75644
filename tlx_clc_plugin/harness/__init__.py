"""The plugin inside the real tritonbench.

``register`` puts our backends and metrics into the harness's gemm operator: all that
``run.py --plugin tlx_clc_plugin.register`` needs. The console command does more: ``handover``
starts the harness in a process of its own, in which ``launch`` checks the request, registers and
watches. What happened comes back as ``events``; ``verdict`` makes an honest exit status of them.
"""
