"""A Prometheus on loopback that scrapes the services as it would in a cluster, with the same labels."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.parts import MissingPart
from tests.parts.chart import NAMESPACE
from tests.parts.servers import serving

Sample = dict[str, Any]
REQUEST_S = 20


def tool(name: str) -> str:
    """`prometheus` or `promtool`, from PATH.

    Raises MissingPart if it is not there; the message says how to get it.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingPart(f"{name} is missing: put it on PATH (Debian: apt-get install prometheus; macOS: brew install prometheus).")
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one: its address, and the file that says what it scrapes."""

    url: str
    targets: Path

    def scrape(self, services: Mapping[str, str]) -> None:
        """Scrape these services (URL by name) from now on, with the labels that they would have in a cluster."""
        groups = [
            {"targets": [urllib.parse.urlsplit(url).netloc], "labels": {"namespace": NAMESPACE, "service": name, "pod": f"{name}-0"}}
            for name, url in services.items()
        ]
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.replace(self.targets)

    def query(self, expr: str) -> list[Sample]:
        """The samples at this moment."""
        return self._ask("query", query=expr)

    def query_range(self, expr: str, start: float, end: float, step_s: float = 1.0) -> list[Sample]:
        """The series between two moments, in seconds since 1970."""
        return self._ask("query_range", query=expr, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step_s}")

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def _ask(self, what: str, **parameters: str) -> list[Sample]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}", timeout=REQUEST_S) as response:
            found: list[Sample] = json.load(response)["data"]["result"]
        return found


@contextmanager
def running(folder: Path, rules: Mapping[str, Any], *, interval: str = "1s", port: int = 0) -> Iterator[Prometheus]:
    """Evaluate `rules`, and scrape what it is told to, every `interval`.

    Raises:
        MissingPart, ServerFailed: with the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(yaml.safe_dump(dict(rules)))
    server = Prometheus("", folder / "targets.json")
    server.scrape({})
    settings = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    job = {"job_name": "knowledge", "file_sd_configs": [{"files": [str(server.targets)]}]}
    configuration = folder / "prometheus.yml"
    configuration.write_text(yaml.safe_dump({"global": settings, "rule_files": [str(folder / "rules.yml")], "scrape_configs": [job]}))
    # A relative path lies in the server's own folder, which goes away with it.
    command = [tool("prometheus"), f"--config.file={configuration}", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with serving("prometheus", command, folder, os.environ) as process:
        address = process.said(r'msg="Listening on" address=(\S+)')
        process.said(r"(Server is ready to receive web requests)")
        yield replace(server, url=f"http://{address}")
