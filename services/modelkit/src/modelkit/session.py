"""One interface to the runtimes that run a graph, and ONNX Runtime behind it as a service on few cores wants it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from modelkit.cpu import Cpus
from modelkit.errors import UnavailableError
from modelkit.manifest import OPENVINO
from modelkit.runtime import RUN_ERRORS, ort
from modelkit.store import ModelFiles

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class RunTerminated(Exception):
    """A run was ended from outside."""


class RunFailed(Exception):
    """The runtime gave up on a run; another input may be fine. The message is the class of its error."""


class Stop:
    """Ends a run from another thread, within milliseconds; one that has not begun does not begin."""

    def __init__(self) -> None:
        self.requested = False
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def request(self) -> None:
        """End the run."""
        with self._lock:
            self.requested = True
            if self._end is not None:
                self._end()

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `end` ends the run; never afterwards, when the same means may serve another run.

        Raises:
            RunTerminated: it was requested before.
        """
        with self._lock:
            if self.requested:
                raise RunTerminated
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class Session(Protocol):
    """A graph on the CPU; several threads may run it at once."""

    def run(self, ids: Ids, type_ids: Ids, stop: Stop | None = None) -> Floats:
        """Run one sequence.

        Args:
            ids: token ids, [S].
            type_ids: 0 for the first text and 1 for the second of a BERT pair, [S]; left out where the graph has no such input.
            stop: where the caller wants to be able to end the run.

        Returns:
            The graph's first output for this sequence, without the batch axis: [S, H] or [labels].

        Raises:
            RunTerminated: it was stopped.
            RunFailed: the runtime refused the input, or failed on it.
        """

    def prepare(self, max_tokens: int) -> None:
        """Do once what would make the first run of some lengths slow; where there is no such thing, nothing."""


def open_session(files: ModelFiles, cpus: Cpus, *, threads: int = 1) -> Session:
    """The files in the runtime that their precision asks for.

    Args:
        files: verified files.
        cpus: what the session may use.
        threads: how many threads one run uses; callers that run several at once take 1.

    Raises:
        UnavailableError: the runtime is not installed.
    """
    if files.precision in OPENVINO:
        try:
            from modelkit.openvino_session import OpenVinoModel
        except ModuleNotFoundError:
            raise UnavailableError(
                f"{files.label} is run by openvino: install knowledge-modelkit[openvino], or use another precision."
            ) from None
        # int8-static: in bf16 the mask of padding, as many graphs have it, becomes infinite, which 8 bits turn into something else.
        # int8-weights: OpenVINO 2026.4 scores wrongly, now and then, where runs share such weights.
        bf16, apart = files.precision != "int8-static", files.precision == "int8-weights"
        return OpenVinoModel(files.model, cpus, threads=threads, bf16=bf16, apart=apart)
    return OnnxModel(files.model, cpus, threads=threads)


class OnnxModel:
    """A graph in ONNX Runtime, run without padding.

    Args:
        path: the graph.
        cpus: under a quota the threads of a run do not spin while they wait, which would burn what the quota pays for.
        threads: as of `open_session`.
    """

    def __init__(self, path: Path, cpus: Cpus, *, threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_mem_pattern = False  # lengths differ from run to run
        options.log_severity_level = 3
        spinning = "0" if cpus.quota_limited else "1"
        options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def prepare(self, max_tokens: int) -> None:
        """Any length is as good as another here."""

    def run(self, ids: Ids, type_ids: Ids, stop: Stop | None = None) -> Floats:
        """As of `Session`."""
        feeds = {
            "input_ids": ids[None, :],
            "attention_mask": np.ones((1, ids.size), np.int64),
            "token_type_ids": type_ids[None, :],
        }
        used = {name: value for name, value in feeds.items() if name in self._inputs}
        stop, options = stop or Stop(), ort.RunOptions()
        # Without it the memory of the longest text ever seen is kept for good.
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            with stop.ended_by(lambda: setattr(options, "terminate", True)):
                output = self._session.run(None, used, options)[0]
        except RUN_ERRORS as error:
            if stop.requested:
                raise RunTerminated from None
            raise RunFailed(type(error).__name__) from None  # its own message may name token ids, which are as good as the text
        first: Floats = np.asarray(output, np.float32)[0]
        return first
