"""The dashboard answers the questions of docs/observability.md, with the metrics that the server has."""

import json
import re
from typing import Any

from deployments.metrics import COUNTERS, GAUGES, HISTOGRAMS
from tests.k8s.manifests import K8S, ROOT, of_kind

FILE = K8S / "components" / "monitoring" / "simsd-dashboard.json"
EXPORTED = (
    {f"ray_{name}_total" for name in COUNTERS}
    | {f"ray_{name}" for name in GAUGES}
    | {f"ray_{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")}
)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def questions() -> dict[str, list[str]]:
    """Heading -> its queries."""
    text = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    asked = text.split("\n## Questions")[1].split("\n## ")[0].split("\n### ")[1:]
    found = {}
    for part in asked:
        (code,) = re.findall(r"```promql\n(.*?)```", part, flags=re.DOTALL)
        found[part.splitlines()[0]] = [line for line in code.splitlines() if line and not line.startswith("#")]
    return found


def panels() -> dict[str, list[str]]:
    """Row -> the queries below it."""
    found: dict[str, list[str]] = {}
    row = ""
    for panel in sorted(dashboard()["panels"], key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"])):
        if panel["type"] == "row":
            row = panel["title"]
            found[row] = []
        else:
            found[row] += [target["expr"] for target in panel["targets"]]
    return found


def test_a_row_for_every_question_and_a_panel_for_every_query() -> None:
    assert panels() == questions()
    assert len(panels()) >= 10


def test_queries_name_metrics_that_the_server_exports() -> None:
    for queries in panels().values():
        for query in queries:
            named = set(re.findall(r"\bray_\w+", query))
            assert named, query
            assert named <= EXPORTED, query


def test_labels_that_queries_select_by_are_those_of_the_metric() -> None:
    labels = {f"ray_{name}_total": given for name, (_, given) in COUNTERS.items()}
    labels |= {f"ray_{name}": given for name, (_, given) in GAUGES.items()}
    for queries in panels().values():
        for query in queries:
            for name, selector in re.findall(r"(ray_\w+)\{(.*?)\}", query):
                assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= set(labels[name]), query


def test_panels_have_their_own_ids_and_do_not_overlap() -> None:
    found = dashboard()["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_it() -> None:
    for overlay in ("gpu-pair", "gpu-autoscale"):
        (config_map,) = of_kind(overlay, "ConfigMap")
        assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert json.loads(config_map["data"][FILE.name]) == dashboard()
