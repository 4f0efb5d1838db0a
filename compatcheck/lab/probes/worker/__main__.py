"""Load this folder as the package `probe_worker`, whatever the interpreter has installed, and run it."""

import importlib.util
import os
import sys


def _load() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    # The folder itself must not be importable from: its modules have common names.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != folder]
    spec = importlib.util.spec_from_file_location(
        "probe_worker",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe_worker"] = module
    spec.loader.exec_module(module)


_load()
main = importlib.import_module("probe_worker.main").main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
