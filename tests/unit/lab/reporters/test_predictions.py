"""Predictions beside measurements, in one table."""

from compatcheck.lab.measurement import Measurement
from compatcheck.lab.reporters.predictions import Judged, format_predictions


def judged(verdict, results=None, status="ok", probe="workspace", reason=None, changed=None):
    measurement = Measurement(
        probe=probe,
        probe_hash="0",
        backend="cuda",
        accounting="cuda",
        parameters={},
        versions={"torch": "2.13.0", "python": "3.11.7"},
        device="NVIDIA H100",
        status=status,
        results=results or {},
        reason=reason,
    )
    predictions = {"left_bytes": 8_519_680, "again_bytes": 512}
    return Judged(measurement, changed or {}, predictions, "left_bytes", verdict)


def test_each_predicted_number_has_a_row_and_a_byte_shows():
    text = format_predictions(
        [
            judged("bad", {"left_bytes": 8_519_681, "again_bytes": 512}),
            judged("good", {"left_bytes": 8_519_680}, changed={"config": ":16:8"}),
        ]
    )
    assert text.splitlines() == [
        "cuda: NVIDIA H100; torch 2.13.0, python 3.11.7",
        "",
        "probe      parameters    metric       predicted   measured  difference  verdict",
        "workspace                left_bytes*  8,519,680  8,519,681          +1  bad",
        "workspace                again_bytes        512        512",
        "workspace  config=:16:8  left_bytes*  8,519,680  8,519,680              good",
        "workspace  config=:16:8  again_bytes        512          -",
        "",
        "1 probes, 2 measurements: 1 good, 1 bad",
    ]


def test_what_has_no_result_says_why_once():
    reason = "torch sees no CUDA device"
    text = format_predictions([judged("skipped", status="unsupported", reason=reason) for _ in range(2)])
    assert text.splitlines()[-2:] == ["1 probes, 2 measurements: 2 without a result", f"  workspace: {reason}"]
    assert [line.split() for line in text.splitlines()[1:3]] == [["workspace", "unsupported"]] * 2
