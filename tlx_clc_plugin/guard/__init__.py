"""Did it get slower, wrong or go missing?

    benchmarks (pytest_plugin) -> saved JSON -> verdict against a baseline and the last nights
    nights -> history: level shifts and creeps, and the commit where they set in

``tlx-clc compare`` is :mod:`.compare`; a cell, the unit of all this, is
:class:`tlx_clc_plugin.nightly.night.Cell`.
"""
