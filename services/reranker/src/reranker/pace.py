"""How long the next pair will take, learned from those before it."""

import threading

ALPHA = 0.2
MARGIN = 1.1


class Pace:
    """A moving average of seconds a token; good within one order of lengths.

    Args:
        seconds_per_token: the first guess, until the warm-up has taught better.
    """

    def __init__(self, seconds_per_token: float = 0.001) -> None:
        self._rate = seconds_per_token
        self._tokens = 128.0
        self._taught = False
        self._lock = threading.Lock()

    def learn(self, tokens: int, seconds: float) -> None:
        """Take one measured run into account."""
        with self._lock:
            alpha = ALPHA if self._taught else 1.0
            self._rate += alpha * (seconds / max(1, tokens) - self._rate)
            self._tokens += alpha * (tokens - self._tokens)
            self._taught = True

    def predict_s(self, tokens: int) -> float:
        """Seconds that a pair of so many tokens will take, a little on the safe side."""
        return MARGIN * self._rate * tokens

    def usual_s(self) -> float:
        """Seconds that a pair of the usual length takes."""
        return self._rate * self._tokens
