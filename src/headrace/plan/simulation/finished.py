"""Times of the requests that ended, in columns."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from headrace.plan.simulation.call import Call

Column = npt.NDArray[np.float64]

TIMES = ("ttft", "tpot", "e2e", "queue")
"""Measures of a request, in seconds; TPOT of one with a single token is NaN."""


class Finished:
    """The times in seconds, tokens and priority of each request, in order of completion."""

    def __init__(self, request_s: float) -> None:
        """request_s: what a request takes beside its time in the engine."""
        self._request_s = request_s
        self._times = {name: array("d") for name in TIMES}
        self.arrived_s = array("d")
        self.prompt_tokens = array("l")
        self.output_tokens = array("l")
        self.cached_tokens = array("l")
        self.priorities = array("l")

    def __len__(self) -> int:
        return len(self.arrived_s)

    def add(self, call: Call) -> float:
        """Enter a call that has ended; its TTFT."""
        arrival = call.arrival
        assert call.finished_s is not None
        assert call.first_token_s is not None
        assert call.admitted_s is not None
        ttft_s = call.first_token_s - arrival.at_s + self._request_s
        rest = arrival.output_tokens - 1
        decode_s = call.finished_s - call.first_token_s
        times = self._times
        times["ttft"].append(ttft_s)
        times["tpot"].append(decode_s / rest if rest else float("nan"))
        times["e2e"].append(ttft_s + decode_s)
        times["queue"].append(call.admitted_s - arrival.at_s)
        self.arrived_s.append(arrival.at_s)
        self.prompt_tokens.append(arrival.prompt_tokens)
        self.output_tokens.append(arrival.output_tokens)
        self.cached_tokens.append(call.cached_tokens)
        self.priorities.append(arrival.priority)
        return ttft_s

    def times(self, name: str) -> Column:
        """A column of `TIMES`, as a copy."""
        return np.array(self._times[name], dtype=np.float64)
