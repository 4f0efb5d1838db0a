"""Load this folder as the package `traced_program` and the worker's as `probe_worker`, and trace.

Usage: ``python __main__.py REQUESTS RESULTS``, both files of JSON: ``worker`` (the folder) and ``requests``; a list of results.
"""

import importlib.util
import json
import os
import sys


def _load(name: str, folder: str) -> None:
    """Make a folder importable under a name of its own; its modules have common ones."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main(request_path: str, result_path: str) -> int:
    """Trace and write what was found; 0 whatever it is."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != folder]
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    _load("probe_worker", request["worker"])
    _load("traced_program", folder)
    run = importlib.import_module("traced_program.run").run
    with open(result_path, "w", encoding="utf-8") as file:
        json.dump([run(one) for one in request["requests"]], file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
