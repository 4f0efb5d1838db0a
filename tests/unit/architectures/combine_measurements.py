"""Combine the oracle's answers of several releases into ``fixtures/measurements/parameter-counts.json``.

``python combine_measurements.py NEWEST.jsonl OLDER.jsonl… > parameter-counts.json``; the inputs come from::

    python draw_configs.py 9 > configurations.jsonl
    python measure_counts.py < configurations.jsonl > RELEASE.jsonl      # in an environment with that release

Per model type the bare configuration and up to four odd ones are kept, those that most releases could build first. The
counts are the newest release's; an older one that counts otherwise stands under ``differs``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FIELDS = ("total", "in_blocks", "embedding", "lm_head", "expert", "expert_per_layer", "vision", "other")
KEPT = 4


def main() -> None:
    answers: dict[str, dict[str, dict]] = {}
    for path in sys.argv[1:]:
        for line in Path(path).read_text("utf-8").splitlines():
            row = json.loads(line)
            if "counts" in row:
                answers.setdefault(json.dumps(row["config"], sort_keys=True), {})[row["transformers"]] = row
    newest = json.loads(Path(sys.argv[1]).read_text("utf-8").splitlines()[0])["transformers"]
    by_type: dict[str, list[dict]] = {}
    for rows in answers.values():
        if newest not in rows:
            continue
        row = rows[newest]
        counts = [row["counts"][field] for field in FIELDS]
        others = {release: [other["counts"][field] for field in FIELDS] for release, other in rows.items()}
        record = {
            "config": row["config"],
            "class": row["class"],
            "counts": counts,
            "transformers": sorted(release for release, other in others.items() if other == counts),
        }
        differs = {release: other for release, other in others.items() if other != counts}
        by_type.setdefault(row["config"]["model_type"], []).append(record | ({"differs": differs} if differs else {}))
    records = []
    for _, rows in sorted(by_type.items()):
        bare = [row for row in rows if len(row["config"]) == 1]
        odd = sorted((row for row in rows if len(row["config"]) > 1), key=lambda row: -len(row["transformers"]))
        records += bare + odd[:KEPT]
    print('{"fields": ' + json.dumps(FIELDS) + ',\n"records": [')
    print(",\n".join(json.dumps(record, separators=(",", ":")) for record in records))
    print("]}")


if __name__ == "__main__":
    main()
