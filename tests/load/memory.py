"""What a process holds in memory, as Linux counts it."""

from dataclasses import dataclass
from pathlib import Path

from tests.load.stack import Stack

MODEL_SERVICE_MB, GATEWAY_MB = 1000, 300
KIB = 1024


@dataclass(frozen=True, slots=True)
class Held:
    """Resident memory of a process in MB (10^6 bytes); None where the system does not say."""

    process: str
    limit_mb: int
    peak_mb: float | None
    now_mb: float | None


def measure(stack: Stack) -> list[Held]:
    """Each process after the run."""
    processes = {
        "knowledge-embedding": (stack.embedding, MODEL_SERVICE_MB),
        "knowledge-reranker": (stack.reranker, MODEL_SERVICE_MB),
        **{f"knowledge-gateway, {backend}": (gateway, GATEWAY_MB) for backend, gateway in stack.gateways.items()},
    }
    return [_held(name, limit, service.process.pid) for name, (service, limit) in processes.items()]


def _held(name: str, limit_mb: int, pid: int) -> Held:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return Held(name, limit_mb, None, None)
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return Held(name, limit_mb, _megabytes(fields.get("VmHWM")), _megabytes(fields.get("VmRSS")))


def _megabytes(field: str | None) -> float | None:
    """`   123 kB` means KiB."""
    return None if field is None else int(field.split()[0]) * KIB / 1e6
