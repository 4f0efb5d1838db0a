"""Trees of Python code are walked through once, in the order of `ast`."""

from __future__ import annotations

import ast

from compatcheck.core.python_code import parse_python
from compatcheck.core.python_tree import find_calls, nodes_of


def test_all_nodes_but_those_of_load_and_store_come_in_the_order_of_ast() -> None:
    tree = parse_python(
        "class A(B, key=1):\n    def f(self, *a: int, b=[c for c in d]) -> None:\n        x[1:2] = f'{y!r}'\n"
    )
    assert list(nodes_of(tree)) == [
        one for one in ast.walk(tree) if one is not tree and not isinstance(one, ast.expr_context)
    ]
    assert nodes_of(tree) is nodes_of(tree)


def test_a_function_is_called_by_its_name_alone_or_of_a_module() -> None:
    tree = parse_python("setup(1)\nsetuptools.setup(2)\nsetup.other(3)\nf().setup(4)\nfirst_setup(5)\n")
    assert sorted(call.lineno for call in find_calls(tree, "setup")) == [1, 2, 4]
