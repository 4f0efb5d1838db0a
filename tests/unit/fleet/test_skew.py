"""Where nodes differ, who is unlike most, and which of it matters."""

from __future__ import annotations

from compatcheck.core.fleet import Skew
from compatcheck.core.node import Node
from compatcheck.fleet.skew import Weights, differing_files, find_skews, is_of_sizes, natural
from compatcheck.rules.locate import open_rules
from tests.unit.fleet.drawn_nodes import HARDWARE, draw


def skews_of(*nodes: Node) -> dict[str, Skew]:
    return {f"{skew.kind} {skew.name}": skew for skew in find_skews(nodes, open_rules(()))}


def test_nodes_that_are_alike_differ_in_nothing():
    assert skews_of(*(draw(f"node{number}") for number in range(4))) == {}


def test_most_and_the_odd_ones_are_told_apart():
    odd = draw("odd", {"nvidia-nccl-cu12": "2.20.5"})
    found = skews_of(draw("a"), draw("b"), odd)
    assert list(found) == ["component nccl"]
    assert found["component nccl"].majority == "2.21.5"
    assert found["component nccl"].odd == ("odd",)


def test_where_no_value_has_most_nobody_is_odd():
    skew = skews_of(draw("a"), draw("b", {"deepspeed": "0.16.4"}))["package deepspeed"]
    assert (skew.majority, skew.odd) == (None, ())


def test_what_rules_are_about_matters_and_a_test_runner_does_not():
    found = skews_of(draw("a"), draw("b", {"torch": "2.5.1", "pytest": "8.1", "ray": None}))
    assert {name: skew.why is not None for name, skew in found.items()} == {
        "package ray": True,
        "package torch": True,
        "package pytest": False,
    }
    assert found["package ray"].values == (("2.60.0", ("a",)), ("absent", ("b",)))


def test_variables_that_say_where_things_lie_are_of_the_node():
    found = skews_of(
        draw(
            "a",
            variables={
                "NCCL_SOCKET_IFNAME": "eth0",
                "HF_HUB_CACHE": "/a",
                "NCCL_DEBUG_FILE": "/x",
                "SGLANG_HOST_IP": "10.0.0.1",
            },
        ),
        draw(
            "b",
            variables={"NCCL_SOCKET_IFNAME": "ens3", "HF_HUB_CACHE": "/b", "NCCL_ALGO": "Ring", "VLLM_DP_RANK": "1"},
        ),
    )
    assert [name for name, skew in found.items() if skew.why] == ["variable NCCL_ALGO"]
    assert found["variable NCCL_ALGO"].values == (("Ring", ("b",)), ("not set", ("a",)))


def test_what_a_kernel_keeps_of_memory_is_no_difference():
    less = HARDWARE._replace(host_memory_bytes=2**41 - 2**26)
    half = HARDWARE._replace(host_memory_bytes=2**40)
    assert skews_of(draw("a"), draw("b", hardware=less)) == {}
    assert list(skews_of(draw("a"), draw("b", hardware=half))) == ["hardware host memory"]


def test_a_head_without_devices_is_none_that_lost_them():
    bare = HARDWARE._replace(gpu=None, memory_bytes=None, gpus_per_node=None, driver=None)
    head, broken = (draw(name, hardware=bare, devices_offered=count) for name, count in (("head", 0), ("broken", 8)))
    assert skews_of(draw("a"), draw("b"), head) == {}
    assert skews_of(draw("a"), draw("b"), broken)["hardware device"].odd == ("broken",)


def test_code_and_configuration_are_compared_by_content():
    trees = [{"verl/a.py": "1", "verl/b.py": "1"}, {"verl/a.py": "2", "verl/b.py": "1"}]
    nodes = [
        draw(str(number), editable={"verl": tree}, configuration={"/ds.json": None if number else "abc"})
        for number, tree in enumerate(trees)
    ]
    assert list(skews_of(*nodes)) == ["files verl", "configuration /ds.json"]
    assert differing_files(nodes, "verl") == ("verl/a.py",)


def test_every_row_of_the_table_says_why():
    weights = Weights(open_rules(()))
    assert weights.why(("package", "ray")) == "Ray refuses workers of another release"
    assert weights.why(("package", "a-package-of-nobody")) is None
    assert weights.why(("variable", "NCCL_DEBUG_SUBSYS")) is None


def test_names_are_sorted_as_people_count():
    assert sorted(["node10", "node9", "gpu-2", "10.0.0.2"], key=natural) == ["10.0.0.2", "gpu-2", "node9", "node10"]
    odd = ["n²", "n" + "9" * 5000, "n07", "n7", "n09", "n1", "٣"]
    assert sorted(odd, key=natural) == ["n1", "n07", "n7", "n09", "n" + "9" * 5000, "n²", "٣"]


def test_patch_releases_of_python_matter_to_ray_alone():
    def found(*pythons: str, ray: str | None) -> list[str | None]:
        nodes = [draw(python, {"ray": ray}) for python in pythons]
        nodes = [
            node._replace(environment=node.environment._replace(python=python))
            for node, python in zip(nodes, pythons, strict=True)
        ]
        return [skew.why for skew in find_skews(nodes, open_rules(()))]

    assert found("3.11.9", "3.11.10", ray=None) == [None]
    assert found("3.11.9", "3.11.10", ray="2.60.0") == ["ranks run one stack"]
    assert found("3.11.9", "3.12.1", ray=None) == ["ranks run one stack"]


def test_unequal_memory_is_another_matter_than_a_lost_device():
    def sizes(**changed: object) -> list[bool]:
        found = skews_of(draw("a"), draw("b"), draw("c", hardware=HARDWARE._replace(**changed)))
        return [is_of_sizes(skew) for skew in found.values()]

    assert sizes(host_memory_bytes=HARDWARE.host_memory_bytes * 95 // 100) == [True]
    assert sizes(gpu="A100-SXM4-80GB") == [True]
    assert sizes(gpus_per_node=7) == [False]
    assert sizes(driver="535.54.03") == [False]
    assert not any(sizes(gpu=None, memory_bytes=None))
