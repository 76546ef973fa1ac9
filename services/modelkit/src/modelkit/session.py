"""ONNX Runtime sessions as a service on few cores wants them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modelkit.cpu import Cpus
from modelkit.runtime import RUN_ERRORS, ort


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


class OnnxModel:
    """One graph on the CPU; several threads may run it at once.

    Args:
        path: the graph.
        cpus: under a quota the threads of a run do not spin while they wait, which would burn what the quota pays for.
        threads: how many threads one run uses; callers that run several at once take 1.
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

    def run(self, ids: NDArray[np.int64], type_ids: NDArray[np.int64], stop: Stop | None = None) -> NDArray[np.float32]:
        """Run one sequence, without padding.

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
        first: NDArray[np.float32] = np.asarray(output, np.float32)[0]
        return first
