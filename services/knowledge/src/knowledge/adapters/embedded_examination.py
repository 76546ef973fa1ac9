"""What `knowledge doctor` looks at in an embedded index."""

from pathlib import Path

import apsw

from knowledge.adapters.embedded_schema import read_meta
from knowledge.models import Finding, Verdict

LARGE_CHUNKS = 100_000
"""From here on the exact vector leg takes about as long as a reranked answer may: time for a server."""


def examine(connection: apsw.Connection, path: Path) -> list[Finding]:
    """Version, integrity, compound words, size."""
    findings = [Finding(Verdict.OK, "version", f"SQLite {apsw.sqlite_lib_version()}, one file of {path.stat().st_size / 1e6:.1f} MB")]
    said = str(connection.execute("PRAGMA quick_check(1)").get)
    if said == "ok":
        findings.append(Finding(Verdict.OK, "integrity", "the file is whole"))
    else:
        findings.append(Finding(Verdict.BROKEN, "integrity", "the file is damaged; restore a copy, or delete it and ingest again"))
    if digest := read_meta(connection).get("compound_words"):
        findings.append(Finding(Verdict.OK, "compound words", f"German passages are split by the list {digest}"))
    chunks = int(connection.execute("SELECT count(*) FROM passages").get)
    if not chunks:
        findings.append(Finding(Verdict.WARNING, "contents", "no chunks yet; ingest some documents"))
    elif chunks > LARGE_CHUNKS:
        findings.append(Finding(Verdict.WARNING, "contents", f"{chunks} chunks are many for one file; see `knowledge migrate`"))
    else:
        findings.append(Finding(Verdict.OK, "contents", f"{chunks} chunks"))
    return findings
