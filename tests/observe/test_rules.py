"""The alerts as promtool sees them, with the chart's own thresholds, windows and times."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parts import chart
from tests.parts.prometheus import tool

pytestmark = pytest.mark.prometheus

CASES = Path(__file__).with_name("alerts_test.yaml")
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    """The alerts as they are rendered by default."""
    found: list[dict[str, Any]] = chart.rules()["groups"][0]["rules"]
    return found


def promtool(*arguments: str) -> None:
    """Run it; what it says if it is not content."""
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """`promtool check rules`."""
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(chart.rules()))
    promtool("check", "rules", str(file))


def test_each_alert_fires_keeps_quiet_and_ends(tmp_path: Path) -> None:
    """`promtool test rules`."""
    rules, cases = tmp_path / "rules.yml", tmp_path / "cases.yml"
    rules.write_text(yaml.safe_dump(chart.rules()))
    cases.write_text(CASES.read_text().replace("RULES", str(rules)))
    promtool("test", "rules", str(cases))


def test_each_alert_has_cases(rules: list[dict[str, Any]]) -> None:
    """For each there is a case before it fires, one in which it does, and one after it."""
    expected: dict[str, list[bool]] = {}
    for group in yaml.safe_load(CASES.read_text())["tests"]:
        for case in sorted(group["alert_rule_test"], key=lambda one: int(one["eval_time"].removesuffix("m"))):
            expected.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert set(expected) == {one["alert"] for one in rules}
    assert all(seen[:3] == [False, True, False] for seen in expected.values()), expected


def test_each_alert_says_what_to_do(rules: list[dict[str, Any]]) -> None:
    """Severity, summary, description, and the address of a runbook that is there and names the alert."""
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        page = RUNBOOKS / rule["annotations"]["runbook_url"].rsplit("/", 1)[1]
        assert page.is_file(), page
        assert page.read_text(encoding="utf-8").startswith(f"# {rule['alert']}\n")
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {rule["alert"] for rule in rules} | {"README"}
