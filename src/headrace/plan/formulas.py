"""What each id of a formula says.

F ids are those of the register of formulas that the catalog began with, M ids are of memory, T ids
of time.
"""

from __future__ import annotations

FORMULAS = {
    "F6": "weights = parameters · bits per weight / 8",
    "F7": "KV of a request = Σ layers · (keys + values of a token) · bytes · tokens kept",
    "M1": "weights = Σ bytes of the tensors in the header",
    "M2": "activations = tokens per step · coefficient · hidden size · 2 B "
    "+ requests · vocabulary · 4 B",
    "M3": "usable = memory · share that a runtime takes",
    "M4": "free for KV = usable − weights / devices − activations − runtime",
    "M5": "most context = the longest for which users · KV of a request fits in what is free",
    "M6": "most users = ⌊free / KV of a request⌋",
    "M7": "needed = weights / devices + users · KV of a request + activations + runtime",
    "M8": "runtime = memory of the program, and of collectives between devices",
    "T1": "TTFT = Σ over chunks of max(bytes / bandwidth, operations / peak), each with its "
    "efficiency, + links + launches; queue and network on top",
    "T2": "TPOT = max((weights + KV) / bandwidth, operations of the batch / peak), each with its "
    "efficiency, + links + launches",
    "F3": "E2E = TTFT + TPOT · (output tokens − 1)",
    "T4": "throughput = batch / TPOT",
    "T5": "served = batch · (prompt + output) / (batch · TTFT + (output − 1) · TPOT), of prompt "
    "and output together, as prefill stops decoding",
    "P1": "own = (price / (years · 8760 h) + kW · PUE · USD/kWh + operations) "
    "/ (served · 3600 s · utilisation)",
    "P2": "rented = USD/h · overhead / (served · 3600 s · utilisation)",
    "P3": "API = (prompt · ((1 − hit) · input + hit · cached read) + output · price) · batch "
    "factor / (prompt + output)",
    "P4": "break-even = least volume at which ⌈volume / capacity⌉ · USD/month + volume · marginal "
    "is not above volume · price",
}
