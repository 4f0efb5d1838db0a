"""Run a program's own loop on a CPU and print the most bytes of tensors that were alive: ``count_loop.py FILE FUNCTION SIZES``.

Counted by `Live` of tests/unit/lab/traced/account_steps.py, which shares nothing with the trace.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

if __name__ == "__main__":
    file, name, sizes = sys.argv[1:]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:0] = [os.getcwd(), os.path.join(root, "tests/unit/lab/traced")]
    from account_steps import Live

    spec = importlib.util.spec_from_file_location("own_program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with Live() as live:
        getattr(module, name)(**json.loads(sizes))
    print(json.dumps({"peak": live.peak}))
