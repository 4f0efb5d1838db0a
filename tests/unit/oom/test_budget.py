"""What the other numbers say: fragmentation is claimed last, after everything else was ruled out."""

from __future__ import annotations

import pytest

from compatcheck.oom.budget import weigh
from compatcheck.oom.message import read_messages
from tests.unit.oom.printed_messages import print_message

BASE = {"total": "80.00 GiB", "free": "1.00 GiB", "allocated": "60.00 GiB", "unallocated": "18.00 GiB"}


def cause(asked: str, era: str = "2.2", **sizes):
    (message,) = read_messages(print_message(era, {"asked": asked, **BASE, **sizes}))
    return weigh(message)


@pytest.mark.parametrize(
    ("asked", "sizes", "expected"),
    [
        ("10.00 GiB", {}, "fragmentation"),
        ("20.00 GiB", {}, "need"),
        ("10.00 GiB", {"allocated": "77.00 GiB", "unallocated": "1.00 GiB"}, "need"),
        ("2.00 GiB", {"allocated": "76.00 GiB", "unallocated": "2.10 GiB"}, "nearly_full"),
        ("10.00 GiB", {"allocated": "30.00 GiB", "unallocated": "20.00 GiB"}, "foreign_memory"),
        (
            "10.00 GiB",
            {"allocated": "30.00 GiB", "unallocated": "20.00 GiB", "process": "52.00 GiB"},
            "other_processes",
        ),
        (
            "10.00 GiB",
            {"allocated": "30.00 GiB", "unallocated": "20.00 GiB", "process": "78.00 GiB"},
            "outside_allocator",
        ),
        (
            "10.00 GiB",
            {"allocated": "30.00 GiB", "unallocated": "20.00 GiB", "others": [(7, "79.00 GiB")]},
            "outside_allocator",
        ),
        (
            "10.00 GiB",
            {"allocated": "30.00 GiB", "unallocated": "20.00 GiB", "others": [(7, "28.00 GiB"), (8, "51.00 GiB")]},
            "other_processes",
        ),
        ("10.00 GiB", {"allocated": "30.00 GiB", "unallocated": "48.00 GiB", "process": "79.00 GiB"}, "fragmentation"),
        ("60.00 GiB", {"allocated": "30.00 GiB", "unallocated": "20.00 GiB"}, "need"),
        ("10.00 GiB", {"allocated": "30.00 GiB", "unallocated": "20.00 GiB", "process": "0 bytes"}, "foreign_memory"),
        (
            "10.00 GiB",
            {"allocated": "50.00 GiB", "unallocated": "28.00 GiB", "process": "17179869184.00 GiB"},
            "fragmentation",
        ),
        ("90.00 GiB", {}, "larger_than_device"),
        ("0.50 GiB", {"free": "3.00 GiB", "allocated": "58.00 GiB"}, "refused_with_free_memory"),
        ("0.50 GiB", {"allocated": "78.00 GiB", "unallocated": "0.10 GiB"}, "nearly_full"),
        ("10.00 GiB", {"allocated": "90.00 GiB"}, "unclear"),
        ("10.00 GiB", {"allowed": "70.00 GiB"}, "memory_limit"),
        (
            "10.00 GiB",
            {"allowed": "79.99 GiB", "allocated": "60.00 GiB", "unallocated": "1.00 GiB", "free": "18.00 GiB"},
            "refused_with_free_memory",
        ),
    ],
)
def test_causes(asked, sizes, expected) -> None:
    budget = cause(asked, **sizes)
    assert budget.cause == expected, budget


def test_what_was_ruled_out_is_said() -> None:
    assert cause("20.00 GiB").ruled_out == (
        "larger than the device",
        "refused although free",
        "memory of others",
        "fragmentation",
    )


def test_old_messages_print_the_sum() -> None:
    sizes = {"reserved": "78.00 GiB"}
    assert cause("10.00 GiB", "1.11", **sizes).cause == "fragmentation"
    assert cause("20.00 GiB", "1.4", **sizes).cause == "need"
    assert cause("10.00 GiB", "1.3", **sizes).cause == "fragmentation"


def test_a_message_without_numbers_of_the_card_has_no_budget() -> None:
    (message,) = read_messages("CUDA out of memory. Tried to allocate 9.28 GiB")
    assert weigh(message) is None


def test_what_would_do_joined_is_not_called_need() -> None:
    budget = cause("2.00 GiB", allocated="76.00 GiB", unallocated="2.10 GiB")
    assert "fragmentation" not in budget.ruled_out
    assert "expandable_segments may carry it once" in budget.reason


def test_a_limit_as_large_as_the_device_is_none() -> None:
    sizes = {"total": "79.10 GiB", "allowed": "79.10 GiB", "free": "0.50 GiB", "allocated": "77.50 GiB"}
    budget = cause("3.00 GiB", unallocated="0.10 GiB", **sizes)
    assert budget.cause == "need"
    assert "a memory limit of this process" not in budget.ruled_out


def test_contexts_of_other_ranks_are_told() -> None:
    others = [(11, "72.85 GiB"), *((number, "540.00 MiB") for number in range(20, 27))]
    sizes = {"total": "79.11 GiB", "free": "1.50 MiB", "allocated": "71.90 GiB", "unallocated": "10.00 MiB"}
    budget = cause("2.00 MiB", others=others, **sizes)
    assert budget.cause == "other_processes"
    assert "7 processes of 540.00 MiB each" in budget.reason
    assert "other ranks" in budget.reason


def test_memory_of_others_is_not_ruled_out_where_it_would_have_done() -> None:
    sizes = {"total": "79.11 GiB", "free": "1.50 MiB", "allocated": "75.00 GiB", "unallocated": "0.50 MiB"}
    budget = cause("2.00 MiB", others=[(11, "77.00 GiB"), (20, "2.10 GiB")], **sizes)
    assert "memory of others" not in budget.ruled_out


def test_what_is_left_over_is_not_joined() -> None:
    left = cause("20.00 MiB", total="14.62 GiB", free="3.31 MiB", allocated="14.42 GiB", unallocated="23.14 MiB")
    assert left.cause == "nearly_full"
    assert "next to nothing" in left.reason
    assert "expandable_segments" not in left.reason


def test_what_others_hold_is_no_cause_where_enough_was_free() -> None:
    sizes = {
        "total": "24.00 GiB",
        "free": "562.00 MiB",
        "allocated": "21.00 GiB",
        "unallocated": "1.20 GiB",
        "process": "22.60 GiB",
    }
    others = [(7, "384.00 MiB"), (8, "516.00 MiB")]
    refused = cause("388.00 MiB", **sizes, others=others)
    assert (refused.cause, "last of a device" in refused.reason) == ("nearly_full", True)
    assert "refused although free" not in refused.ruled_out
    held = cause("388.00 MiB", **{**sizes, "free": "62.00 MiB", "process": "23.00 GiB"}, others=others)
    assert held.cause == "other_processes"
    assert "small programs, or other ranks" in held.reason


def test_a_share_without_processes_is_a_lower_bound() -> None:
    held = cause(
        "258.00 MiB", era="1.11", total="23.54 GiB", free="572.50 MiB", allocated="11.75 GiB", reserved="12.40 GiB"
    )
    assert held.reason.startswith("at least ")
    assert "would have fitted" not in held.reason
