"""OpenVINO behind `Session`. Import it from `open_session`: the package is an extra.

Its kernels are made for a shape when that shape is first met (a tenth of a second for a large model) and kept. So lengths are
rounded up: there are few shapes, all are met before the first request, and memory ends at that. The tokens added are masked.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from threading import Barrier

import numpy as np

from modelkit.cpu import Cpus
from modelkit.openvino_runtime import core, openvino
from modelkit.session import Floats, Ids, RunFailed, RunTerminated, Stop

STEP = 16
"""Lengths are multiples of this, which is the height of the tiles of matrix instructions: they would compute the rest anyway."""

PREPARE_S = 60.0
"""For one length; what does not end by then has failed elsewhere."""


def padded(ids: Ids, type_ids: Ids) -> dict[str, Ids]:
    """The inputs of a run, each [1, S] with S rounded up."""
    added = (0, -ids.size % STEP)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": type_ids}
    return {name: np.pad(values, added)[None, :] for name, values in feeds.items()}


class OpenVinoModel:
    """A graph in OpenVINO, with as many runs at once as there are cores for them.

    Args:
        path: the graph's `.xml`; its `.bin` lies beside it.
        cpus: what it may use.
        threads: how many threads one run uses.
        bf16: whether what is left as floating-point numbers may be computed in 16 bits, where the processor has instructions for it.
        apart: whether each of the runs that go on at once has a copy of the weights.
    """

    def __init__(self, path: Path, cpus: Cpus, *, threads: int = 1, bf16: bool = True, apart: bool = False) -> None:
        bf16 = bf16 and "BF16" in core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        self._at_once = max(1, cpus.count // threads)
        copies = self._at_once if apart else 1
        config = {
            "NUM_STREAMS": self._at_once // copies,
            "INFERENCE_NUM_THREADS": max(threads, cpus.count // copies),
            "ENABLE_CPU_PINNING": False,  # others share the machine, and a container's cores may change
            "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        }
        compiled = [core().compile_model(str(path), "CPU", config) for _ in range(copies)]
        self._inputs = {each.any_name for each in compiled[0].inputs}
        self._per_token = len(compiled[0].output(0).partial_shape) == 3
        self._next = cycle(compiled)
        self._idle: deque[openvino.InferRequest] = deque()
        # The very first run sets up what the bindings share; two of them at once wait for each other for good.
        self.run(np.zeros(1, np.int64), np.zeros(1, np.int64))

    def prepare(self, max_tokens: int) -> None:
        """Meet every length up to this one, with all runs at once."""
        together = Barrier(self._at_once)

        def meet(_: int) -> None:
            for length in range(STEP, max_tokens + STEP, STEP):
                together.wait(PREPARE_S)
                ids = np.ones(min(length, max_tokens), np.int64)
                self.run(ids, np.zeros_like(ids))

        with ThreadPoolExecutor(self._at_once) as pool:
            list(pool.map(meet, range(self._at_once)))

    def _request(self) -> openvino.InferRequest:
        try:
            return self._idle.pop()
        except IndexError:
            return next(self._next).create_infer_request()

    def run(self, ids: Ids, type_ids: Ids, stop: Stop | None = None) -> Floats:
        """As of `Session`."""
        stop, feeds, request = stop or Stop(), padded(ids, type_ids), self._request()
        try:
            # Begun before it can be stopped: a request that has not begun takes no notice of being cancelled.
            request.start_async({name: value for name, value in feeds.items() if name in self._inputs})
            try:
                with stop.ended_by(request.cancel):
                    request.wait()
            except RunTerminated:
                request.cancel()
                with suppress(RuntimeError):  # which says that it was cancelled
                    request.wait()
                raise
            found = np.array(request.get_output_tensor(0).data, np.float32)
        except RuntimeError as error:
            if stop.requested:
                raise RunTerminated from None
            raise RunFailed(type(error).__name__) from None  # its own message may name token ids, which are as good as the text
        finally:
            self._idle.append(request)
        return found[0, : ids.size] if self._per_token else found[0]
